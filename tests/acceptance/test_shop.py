"""The example shop: what it owes by mail is written with what it sells, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from examples.shop.accounts import request_password_reset
from examples.shop.checkout import CartLine, PaymentDeclinedError, checkout, ship
from examples.shop.models import Base, Customer, Order, PasswordReset
from examples.shop.money import money
from examples.shop.reports import send_monthly_report

CART = [CartLine("Mug", 2, 1450), CartLine("Salt & pepper <mill>", 1, 5400)]


@pytest.fixture
def session(database_url: str) -> Iterator[Session]:
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Customer(name="Ayşe Yılmaz", email="ayse@posta.example", locale="tr"))
        session.commit()
        yield session
    engine.dispose()


@pytest.fixture
def customer(session: Session) -> Customer:
    return session.scalars(select(Customer)).one()


def messages(connection: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM email_messages ORDER BY id").fetchall()


def test_an_order_and_its_confirmation_appear_together(
    session: Session, customer: Customer, connection: psycopg.Connection[Any]
) -> None:
    placed = checkout(session, customer, CART, currency="TRY")
    assert messages(connection) == []
    session.commit()
    (message,) = messages(connection)
    assert message["id"] == placed.confirmation_id
    assert message["status"] == "PENDING"
    assert message["to"] == ["Ayşe Yılmaz <ayse@posta.example>"]
    assert message["locale"] == "tr"
    assert (message["entity_type"], message["entity_id"]) == ("order", str(placed.order.id))
    assert message["parameters"]["order"]["total"] == "₺83,00"


def test_a_declined_payment_leaves_neither_order_nor_mail(
    session: Session, customer: Customer, connection: psycopg.Connection[Any]
) -> None:
    with pytest.raises(PaymentDeclinedError):
        checkout(session, customer, CART, card_ok=False)
    session.rollback()
    assert session.scalars(select(Order)).all() == []
    assert messages(connection) == []


def test_a_shipping_notice_follows_its_confirmation(
    session: Session, customer: Customer, connection: psycopg.Connection[Any]
) -> None:
    placed = checkout(session, customer, CART)
    ship(session, placed.order, {"carrier": "Yurtiçi", "number": "1", "url": "https://track.shop.example/1"})
    session.commit()
    first, second = messages(connection)
    assert first["ordering_key"] == second["ordering_key"]
    assert first["ordering_seq"] < second["ordering_seq"]


def test_a_password_code_is_urgent_and_ends_with_its_validity(
    session: Session, customer: Customer, connection: psycopg.Connection[Any]
) -> None:
    request_password_reset(session, customer)
    session.commit()
    (message,) = messages(connection)
    reset = session.scalars(select(PasswordReset)).one()
    assert message["priority"] == 1
    assert abs(message["expires_at"] - reset.expires_at) < timedelta(seconds=1)
    assert message["parameters"]["code"] not in reset.code_digest


def test_the_monthly_report_refers_to_a_file_that_holds_the_sales(
    session: Session, customer: Customer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    checkout(session, customer, CART)
    month = datetime.now(UTC).date().replace(day=1)
    send_monthly_report(session, month, ("Owner", "owner@shop.example"), tmp_path / "files")
    session.commit()
    report = messages(connection)[-1]
    (attachment,) = report["attachments"]
    path = Path(attachment["storage_ref"].removeprefix("file://"))
    assert path.read_text().splitlines()[1] == "Salt & pepper <mill>,EUR,1,54.00"
    assert attachment["content_type"] == "text/csv"
    assert report["priority"] == 3
    assert report["parameters"]["orders"] == 1


@pytest.mark.parametrize(
    ("amount", "currency", "locale", "text"),
    [
        (124990, "TRY", "tr", "₺1.249,90"),
        (124990, "EUR", "en", "€1,249.90"),
        (5, "EUR", "tr-TR", "€0,05"),
        (100, "CHF", "en", "CHF 1.00"),
    ],
)
def test_amounts_are_written_as_the_reader_writes_them(amount: int, currency: str, locale: str, text: str) -> None:
    assert money(amount, currency, locale) == text
