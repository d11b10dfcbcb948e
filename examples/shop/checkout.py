"""Orders: what is bought and the mail about it are one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy.orm import Session

from examples.shop.models import Customer, Order, OrderLine
from examples.shop.money import money
from outbox_mail import enqueue


class PaymentDeclinedError(Exception):
    """The bank said no: roll back, and the order was never placed, nor its confirmation asked for."""

    def __init__(self, confirmation_id: UUID) -> None:
        super().__init__("the bank declined the payment")
        self.confirmation_id = confirmation_id


class CartLine(NamedTuple):
    """So many of one article at a price in the currency's smallest unit."""

    article: str
    quantity: int
    unit_price: int


class Placed(NamedTuple):
    """An order, and the id of the mail that confirms it."""

    order: Order
    confirmation_id: UUID


def checkout(
    session: Session, customer: Customer, cart: Sequence[CartLine], *, currency: str = "EUR", card_ok: bool = True
) -> Placed:
    """Write the order and ask for its confirmation, in the session's transaction; the caller commits.

    Raises ``PaymentDeclinedError`` after both were written, as a payment that comes last does: rolling back takes the
    mail back with the order.
    """
    order = Order(
        customer=customer,
        currency=currency,
        lines=[OrderLine(article=line.article, quantity=line.quantity, unit_price=line.unit_price) for line in cart],
    )
    session.add(order)
    session.flush()  # gives the order its number
    confirmation_id = enqueue(
        session,
        to=(customer.name, customer.email),
        template="ORDER_CONFIRMED",
        parameters={
            "customer": {"name": customer.name},
            "order": {
                "number": order.id,
                "lines": [
                    {
                        "article": line.article,
                        "quantity": line.quantity,
                        "price": money(line.quantity * line.unit_price, currency, customer.locale),
                    }
                    for line in cart
                ],
                "total": money(order.total, currency, customer.locale),
            },
        },
        locale=customer.locale,
        entity=("order", order.id),
        ordering_key=f"order-{order.id}",
        idempotency_key=f"order-confirmed-{order.id}",
        tags=["shop", "order"],
    )
    if not card_ok:
        raise PaymentDeclinedError(confirmation_id)
    return Placed(order, confirmation_id)


def ship(session: Session, order: Order, tracking: dict[str, str] | None) -> UUID:
    """Tell the customer that the order is on its way, after its confirmation; the caller commits.

    Without ``tracking`` the template has nothing to show: the mistake is found when the mail is rendered, and the
    message ends FAILED for a person to see.
    """
    return enqueue(
        session,
        to=(order.customer.name, order.customer.email),
        template="ORDER_SHIPPED",
        parameters={"customer": {"name": order.customer.name}, "order": {"number": order.id}}
        | ({"tracking": tracking} if tracking else {}),
        locale=order.customer.locale,
        entity=("order", order.id),
        ordering_key=f"order-{order.id}",
        tags=["shop", "order"],
    )
