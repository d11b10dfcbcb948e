"""The monthly report: the file is written first, the mail refers to it."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from examples.shop.models import Order, OrderLine
from examples.shop.money import money
from outbox_mail import Attachment, Priority, enqueue


class _Sales(NamedTuple):
    article: str
    currency: str
    quantity: int
    amount: int


def _placed_in(month: date) -> ColumnElement[bool]:
    start = datetime(month.year, month.month, 1, tzinfo=UTC)
    end = datetime(month.year + month.month // 12, month.month % 12 + 1, 1, tzinfo=UTC)
    return and_(Order.placed_at >= start, Order.placed_at < end)


def _sales(session: Session, month: date) -> list[_Sales]:
    amount = func.sum(OrderLine.quantity * OrderLine.unit_price)
    rows = session.execute(
        select(OrderLine.article, Order.currency, func.sum(OrderLine.quantity), amount)
        .join(OrderLine.order)
        .where(_placed_in(month))
        .group_by(OrderLine.article, Order.currency)
        .order_by(amount.desc(), OrderLine.article)
    )
    return [_Sales(*row) for row in rows]


def _write(path: Path, sales: list[_Sales]) -> None:
    """Whole or not at all: the mail may be sent while the next report is being written."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["article", "currency", "quantity", "amount"])
    writer.writerows((row.article, row.currency, row.quantity, f"{row.amount / 100:.2f}") for row in sales)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(text.getvalue().encode())
    part.replace(path)


def send_monthly_report(session: Session, month: date, to: tuple[str, str], folder: Path) -> UUID:
    """Write the month's sales to ``folder`` and ask for a mail with the file; the caller commits.

    The row holds a reference, not the bytes; the worker reads the file when it sends. Bulk priority: it waits behind
    everything that a person is waiting for. ``folder`` is absolute and below one of the service's attachment stores. A
    rollback leaves the file behind, which the next report overwrites.
    """
    sales = _sales(session, month)
    path = folder / f"sales-{month:%Y-%m}.csv"
    _write(path, sales)
    return enqueue(
        session,
        to=to,
        template="MONTHLY_REPORT",
        parameters={
            "month": f"{month:%B %Y}",
            "articles": [
                {"article": row.article, "quantity": row.quantity, "amount": money(row.amount, row.currency, "en")}
                for row in sales[:5]
            ],
            "orders": session.scalars(select(func.count()).select_from(Order).where(_placed_in(month))).one(),
        },
        attachments=[Attachment.ref(filename=path.name, storage_ref=f"file://{path}")],
        priority=Priority.BULK,
        entity=("report", f"{month:%Y-%m}"),
        tags=["shop", "report"],
    )
