"""Passwords: a code by mail that is urgent, and worthless after a quarter of an hour."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy.orm import Session

from examples.shop.models import Customer, PasswordReset
from outbox_mail import Priority, enqueue

CODE_LIFE = timedelta(minutes=15)


def request_password_reset(session: Session, customer: Customer) -> UUID:
    """Keep the digest of a new code and mail the code, in the session's transaction; the caller commits.

    High priority: it passes whatever else waits. If it can't go out before the code ends, it doesn't go out at all.
    """
    code = f"{secrets.randbelow(1_000_000):06d}"
    expires_at = datetime.now(UTC) + CODE_LIFE
    session.add(
        PasswordReset(
            customer_id=customer.id, code_digest=hashlib.sha256(code.encode()).hexdigest(), expires_at=expires_at
        )
    )
    return enqueue(
        session,
        to=(customer.name, customer.email),
        template="PASSWORD_RESET_CODE",
        parameters={"customer": {"name": customer.name}, "code": code, "minutes": CODE_LIFE.seconds // 60},
        locale=customer.locale,
        priority=Priority.HIGH,
        expires_at=expires_at,
        entity=("customer", customer.id),
        tags=["shop", "account"],
    )
