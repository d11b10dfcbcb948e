"""What happens in the shop during the demo, and how each mail of it must end."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from examples.demo.promise import End, Promise
from examples.shop.accounts import request_password_reset
from examples.shop.checkout import CartLine, PaymentDeclinedError, checkout, ship
from examples.shop.models import Base, Customer
from examples.shop.reports import send_monthly_report

_SCENE_EVERY_ORDERS = 6
_CUSTOMERS = (
    ("Ayşe Yılmaz", "ayse.yilmaz@posta.example", "tr"),
    ("Mehmet Öztürk", "mehmet@ozturk.example", "tr-TR"),
    ("Grace Hopper", "grace@navy.example", "en"),
    ("Çağrı Şahin", "cagri.sahin@posta.example", "tr"),
    ("Lovelace, Ada", "ada@engine.example", "en-GB"),
    ("Zoë Müller", "zoe@straße.example", "en"),
    ("Bob Martin", "bob+shop@mail.example", "en"),
)
_ARTICLES = (
    CartLine("Pour-over coffee set", 1, 3990),
    CartLine("Enamel mug, blue", 2, 1450),
    CartLine("Notebook, dotted, A5", 3, 990),
    CartLine("Linen tea towel", 2, 1200),
    CartLine("Salt & pepper mill <walnut>", 1, 5400),
)


@dataclass
class Story:
    """Plays the shop on ``engine``. ``promises`` grows as it does; reading it from another thread is safe."""

    engine: Engine
    files: Path
    promises: list[Promise] = field(default_factory=list)
    orders: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(2))

    def open(self) -> None:
        """Make the shop's tables and customers, as far as they are missing."""
        Base.metadata.create_all(self.engine)
        with Session(self.engine) as session, session.begin():
            known = set(session.scalars(select(Customer.email)))
            session.add_all(
                Customer(name=name, email=email, locale=locale)
                for name, email, locale in _CUSTOMERS
                if email not in known
            )

    def play(self, orders: int | None, per_second: float, stopped: threading.Event) -> None:
        """Take ``orders`` orders (None: without end) at a pace, with the other scenes in between, until ``stopped``.

        Every scene has been played at least once when this returns by itself.
        """
        scenes: list[Callable[[Session], None]] = [
            self._forgotten_password,
            self._declined_payment,
            self._refused_address,
            self._greylisted_address,
            self._forgotten_tracking,
            self._monthly_report,
        ]
        played = 0
        while not stopped.wait(1 / per_second) and (orders is None or self.orders < orders):
            with Session(self.engine) as session:
                self._order(session)
            if self.orders % _SCENE_EVERY_ORDERS == 0 and (orders is None or played < len(scenes)):
                with Session(self.engine) as session:
                    scenes[played % len(scenes)](session)
                played += 1
        for scene in scenes[played:]:
            if not stopped.is_set():
                with Session(self.engine) as session:
                    scene(session)

    def _customer(self, session: Session) -> Customer:
        email = self._random.choice(_CUSTOMERS)[1]
        return session.scalars(select(Customer).where(Customer.email == email)).one()

    def _cart(self) -> list[CartLine]:
        return self._random.sample(_ARTICLES, self._random.randint(1, 4))

    def _order(self, session: Session) -> None:
        customer = self._customer(session)
        currency = "TRY" if customer.locale.startswith("tr") else "EUR"
        placed = checkout(session, customer, self._cart(), currency=currency)
        session.commit()
        self.orders += 1
        self.promises.append(Promise(placed.confirmation_id, "order confirmed"))
        if self.orders % 4 == 0:
            number = f"{self._random.randrange(10**9):09d}"
            shipped = ship(
                session,
                placed.order,
                {"carrier": "Yurtiçi", "number": number, "url": f"https://track.shop.example/{number}"},
            )
            session.commit()
            self.promises.append(Promise(shipped, "order shipped"))

    def _forgotten_password(self, session: Session) -> None:
        id_ = request_password_reset(session, self._customer(session))
        session.commit()
        self.promises.append(Promise(id_, "password code (urgent)"))

    def _declined_payment(self, session: Session) -> None:
        try:
            checkout(session, self._customer(session), self._cart(), card_ok=False)
        except PaymentDeclinedError as declined:
            session.rollback()
            self.promises.append(Promise(declined.confirmation_id, "order rolled back", End.NOWHERE))

    def _refused_address(self, session: Session) -> None:
        placed = checkout(session, self._newcomer(session, "refused"), self._cart())
        session.commit()
        self.promises.append(Promise(placed.confirmation_id, "refused address (550)", End.FAILED, "recipients_refused"))

    def _greylisted_address(self, session: Session) -> None:
        placed = checkout(session, self._newcomer(session, "greylisted"), self._cart())
        session.commit()
        self.promises.append(Promise(placed.confirmation_id, "greylisted (451)", after_retry=True))

    def _newcomer(self, session: Session, kind: str) -> Customer:
        """A customer whom the mail server has never met; how it answers goes by the beginning of the address."""
        customer = Customer(name="New Customer", email=f"{kind}-{uuid4().hex[:8]}@shop.example", locale="en")
        session.add(customer)
        return customer

    def _forgotten_tracking(self, session: Session) -> None:
        placed = checkout(session, self._customer(session), self._cart())
        session.commit()
        self.promises.append(Promise(placed.confirmation_id, "order confirmed"))
        id_ = ship(session, placed.order, tracking=None)
        session.commit()
        self.promises.append(Promise(id_, "parameter missing", End.FAILED, "parameter_missing"))

    def _monthly_report(self, session: Session) -> None:
        month = datetime.now(UTC).date().replace(day=1)
        id_ = send_monthly_report(session, month, ("Shop Owner", "owner@shop.example"), self.files)
        session.commit()
        self.promises.append(Promise(id_, "monthly report (CSV)"))
