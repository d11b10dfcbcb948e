"""What the shop keeps. Amounts are in the currency's smallest unit."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """The shop's own tables; the outbox's have a metadata of their own, in the same database."""


class Customer(Base):
    """Someone who buys. ``locale`` is the language that mail to them is written in."""

    __tablename__ = "customers"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    email: Mapped[str] = mapped_column(unique=True)
    locale: Mapped[str]


class Order(Base):
    """One purchase."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id"), index=True)
    currency: Mapped[str]
    placed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now(), index=True)

    customer: Mapped[Customer] = relationship()
    lines: Mapped[list[OrderLine]] = relationship(back_populates="order")

    @property
    def total(self) -> int:
        """What the customer pays."""
        return sum(line.quantity * line.unit_price for line in self.lines)


class OrderLine(Base):
    """So many of one article, at the price of that day."""

    __tablename__ = "order_lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), index=True)
    article: Mapped[str]
    quantity: Mapped[int]
    unit_price: Mapped[int]

    order: Mapped[Order] = relationship(back_populates="lines")


class PasswordReset(Base):
    """A code that lets a customer choose a new password; only its digest is kept."""

    __tablename__ = "password_resets"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id"), index=True)
    code_digest: Mapped[str]
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
