"""One message, from claim to SENT."""

from __future__ import annotations

import logging
import random
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from psycopg import Connection

from outbox_mail.errors import DatabaseUnavailableError, DeliveryError, ErrorClass, TemplateError
from outbox_mail.mail.attachments.rows import refs_from_json
from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.compose import compose
from outbox_mail.mail.message import Message, message_from_row
from outbox_mail.mail.outbox import MAIL
from outbox_mail.mail.providers.base import Composed, Deadline, Provider, RecipientOutcome, SendResult, State
from outbox_mail.mail.templates import Templates
from outbox_mail.names import Priority
from outbox_mail.outbox import signals as said
from outbox_mail.outbox import transitions
from outbox_mail.outbox.database import Database
from outbox_mail.outbox.doorbell import ring
from outbox_mail.outbox.retry import RetryPolicy
from outbox_mail.outbox.transitions import Failure

_log = logging.getLogger(__name__)

_CLAIM_PATIENCE_SECONDS: Final = 60.0
"""How long a task waits for a database that is down before it drops its ids; the relay publishes them again."""
_RECORD_PATIENCE_SECONDS: Final = 900.0
"""How long it tries to write down what became of a mail. Acceptance counts even after the lease."""


@dataclass(frozen=True, slots=True)
class Countdown:
    """A message that is due again in ``delay_seconds`` and for which the broker should carry the wait."""

    id: UUID
    priority: Priority
    delay_seconds: float


Span = Callable[[Message], AbstractContextManager[object]]


def no_span(_message: Message) -> AbstractContextManager[object]:
    """Traces nothing."""
    return nullcontext()


def no_countdown(_delay_seconds: float) -> bool:
    """Lets the table carry every wait."""
    return False


@dataclass(frozen=True, slots=True)
class Delivery:
    """The parts that delivering needs. One instance serves all threads of a process."""

    database: Database
    templates: Templates
    stores: Stores
    provider: Provider
    retry_policy: RetryPolicy
    signals: said.Signals
    deadline_seconds: float
    default_sender: str
    message_id_domain: str
    reserve_countdown: Callable[[float], bool] = no_countdown
    """Whether a wait of so many seconds may travel as a countdown; the caller then has to send it."""
    span: Span = field(default=no_span)

    def deliver(self, id_: UUID) -> Countdown | None:
        """Send the message if it is there to be sent, and record what became of it.

        Claims it; renders, composes and sends with no connection held; records the outcome at once. Never raises for
        anything that is wrong with the message, its template or the provider: that ends in the row. Returns the wait
        that the caller has to send as a countdown, if any.

        Raises ``DatabaseUnavailableError`` when the database stays away: before the claim nothing has happened; after
        it the reaper frees the row.
        """
        row = self._claim(id_)
        if row is None:
            return None
        message = message_from_row(row)
        with self.span(message):
            began_at = None
            try:
                mail = self._compose(message)
                began_at = time.monotonic()
                result = self._send(mail)
                send_seconds = time.monotonic() - began_at
            except DeliveryError as error:
                return self._record_failure(message, error)
            except Exception as error:  # noqa: BLE001 - whatever a part raises, the row must not hang
                return self._record_failure(message, _unexpected(message, error, sending=began_at is not None))
            return self._record_result(message, result, send_seconds)

    def _claim(self, id_: UUID) -> dict[str, Any] | None:
        def claim(connection: Connection[Any]) -> dict[str, Any] | str:
            name, at_most_once = self.provider.name, self.templates.at_most_once_names()
            row = transitions.claim(connection, MAIL, id_, provider=name, at_most_once=at_most_once)
            return row or transitions.withdraw(connection, MAIL, id_, provider=name)

        row, _ = self.database.persist(claim, patience_seconds=_CLAIM_PATIENCE_SECONDS)
        if isinstance(row, str):
            self.signals.emit(said.Withdrawn(id_, row))
            if row == "expired":
                self._expire(id_)
            return None
        self.signals.emit(said.Claimed(id_, row["template"], row["waited_seconds"]))
        return row

    def _expire(self, id_: UUID) -> None:
        with self.database.connection() as connection:
            for late, template, attempts in transitions.expire(connection, MAIL, id_=id_):
                self.signals.emit(said.Failed(late, template, "expired", attempts))

    def _compose(self, message: Message) -> Composed:
        content = self.templates.render(
            message.template, message.parameters, locale=message.locale, schema_version=message.schema_version
        )
        attachments = self.stores.load(refs_from_json(message.attachments), timeout_seconds=self.deadline_seconds)
        return compose(
            message,
            content,
            attachments,
            default_sender=self.default_sender,
            message_id_domain=self.message_id_domain,
        )

    def _send(self, mail: Composed) -> SendResult:
        if not mail.recipients:
            # Every address was settled by an earlier attempt whose last word was not recorded.
            return SendResult({})
        return self.provider.send(mail, Deadline.after(self.deadline_seconds))

    def _record_result(self, message: Message, result: SendResult, send_seconds: float) -> Countdown | None:
        outcomes = dict(result.outcomes)
        deferred = [address for address, outcome in outcomes.items() if outcome.state is State.DEFERRED]
        if deferred and not self._gives_up(message, ErrorClass.TRANSIENT):
            return self._retry(
                message,
                self._failure(ErrorClass.TRANSIENT, "recipients_deferred", outcomes),
                result.retry_after_seconds,
            )
        for address in deferred:
            outcomes[address] = replace(outcomes[address], state=State.REFUSED)
        if State.ACCEPTED in _states(message, outcomes):
            self._accept(message, result.provider_message_id, outcomes, send_seconds)
        else:
            self._fail(message, self._failure(ErrorClass.PERMANENT, "recipients_refused", outcomes))
        return None

    def _accept(
        self,
        message: Message,
        provider_message_id: str | None,
        outcomes: Mapping[str, RecipientOutcome],
        send_seconds: float,
    ) -> None:
        refused = _states(message, outcomes).count(State.REFUSED)

        def accept(connection: Connection[Any]) -> bool:
            return transitions.accept(
                connection,
                MAIL,
                message.id,
                provider=self.provider.name,
                provider_message_id=provider_message_id,
                outcomes=_as_json(outcomes) if refused or message.outcomes else None,
                note=("some_recipients_refused", _words(outcomes)) if refused else None,
            )

        recorded, tries = self.database.persist(accept, patience_seconds=_RECORD_PATIENCE_SECONDS, until_stop=False)
        # After a try that broke off, "SENT already" may be that try's own work.
        if recorded or tries > 1:
            self.signals.emit(
                said.Accepted(
                    message.id, message.template, self.provider.name, send_seconds, message.attempt_count, refused
                )
            )
        else:
            self.signals.emit(said.AcceptedAgain(message.id, message.template, self.provider.name))
        self._let_next(message)

    def _record_failure(self, message: Message, error: DeliveryError) -> Countdown | None:
        failure = self._failure(error.error_class, error.code, {}, str(error))
        if error.error_class is ErrorClass.OPERATOR:
            self._release(message, failure)
            return None
        if self._gives_up(message, error.error_class):
            if error.error_class is ErrorClass.UNKNOWN:
                failure = replace(failure, code="outcome_unknown", message=f"{error.code}: {failure.message}")
            self._fail(message, failure)
            return None
        return self._retry(message, failure, error.retry_after_seconds)

    def _gives_up(self, message: Message, error_class: ErrorClass) -> bool:
        try:
            max_attempts = self.templates.policy(message.template).max_attempts
        except TemplateError:
            max_attempts = None
        return self.retry_policy.gives_up(
            error_class, message.attempt_count + 1, at_most_once=message.at_most_once, max_attempts=max_attempts
        )

    def _retry(self, message: Message, failure: Failure, retry_after_seconds: float | None) -> Countdown | None:
        attempts = message.attempt_count + 1
        delay_seconds = self.retry_policy.delay_seconds(attempts, retry_after_seconds)
        countdown = self.reserve_countdown(delay_seconds)

        def retry(connection: Connection[Any]) -> bool:
            return transitions.retry(
                connection,
                MAIL,
                message.id,
                message.claims,
                failure,
                delay_seconds=delay_seconds,
                countdown=countdown,
            )

        if not self._holds(message, retry, "retry"):
            return None
        self.signals.emit(
            said.Retried(message.id, message.template, failure.code, failure.error_class, attempts, delay_seconds)
        )
        return Countdown(message.id, Priority(message.priority), delay_seconds) if countdown else None

    def _fail(self, message: Message, failure: Failure) -> None:
        def fail(connection: Connection[Any]) -> bool:
            return transitions.fail(connection, MAIL, message.id, message.claims, failure)

        if self._holds(message, fail, "fail"):
            self.signals.emit(said.Failed(message.id, message.template, failure.code, message.attempt_count + 1))
            self._let_next(message)

    def _release(self, message: Message, failure: Failure) -> None:
        policy = self.retry_policy
        # Jitter spreads load; it needs no cryptographic randomness.
        delay_seconds = policy.operator_delay_seconds * (1 + policy.jitter * random.random())  # noqa: S311

        def release(connection: Connection[Any]) -> bool:
            return transitions.release(
                connection, MAIL, message.id, message.claims, failure, delay_seconds=delay_seconds
            )

        if self._holds(message, release, "release"):
            self.signals.emit(said.Released(message.id, message.template, failure.code, delay_seconds))

    def _holds(self, message: Message, move: Callable[[Connection[Any]], bool], name: str) -> bool:
        moved, tries = self.database.persist(move, patience_seconds=_RECORD_PATIENCE_SECONDS, until_stop=False)
        if not moved and tries == 1:
            self.signals.emit(said.ClaimLost(message.id, name))
        return moved

    def unpublish(self, ids: Sequence[UUID]) -> None:
        """Take back that ids are out, because their countdown could not be sent: the relay publishes them when due."""
        self.database.persist(
            lambda connection: transitions.unpublish(connection, MAIL, ids), patience_seconds=_CLAIM_PATIENCE_SECONDS
        )

    def _let_next(self, message: Message) -> None:
        if message.ordering_key is not None:
            with suppress(DatabaseUnavailableError), self.database.connection() as connection:
                ring(connection)

    def _failure(
        self, error_class: ErrorClass, code: str, outcomes: Mapping[str, RecipientOutcome], text: str = ""
    ) -> Failure:
        return Failure(error_class, code, text or _words(outcomes), self.provider.name, _as_json(outcomes) or None)


def _unexpected(message: Message, error: Exception, *, sending: bool) -> DeliveryError:
    # The traceback's source lines hold no values of the row, unlike the exception's text.
    _log.error(
        "delivery_internal_error",
        extra={
            "message_id": str(message.id),
            "exception": type(error).__name__,
            "traceback": "".join(traceback.format_tb(error.__traceback__)),
        },
    )
    return DeliveryError(
        "internal_error",
        f"{type(error).__name__} while {'sending' if sending else 'preparing'}; see the worker's log",
        error_class=ErrorClass.UNKNOWN if sending else ErrorClass.TRANSIENT,
    )


def _states(message: Message, outcomes: Mapping[str, RecipientOutcome]) -> list[str]:
    """The last word on each address, this attempt's before earlier ones'."""
    earlier = {address: str(outcome.get("state")) for address, outcome in (message.outcomes or {}).items()}
    return list((earlier | {address: outcome.state.value for address, outcome in outcomes.items()}).values())


def _as_json(outcomes: Mapping[str, RecipientOutcome]) -> dict[str, dict[str, str]]:
    return {
        address: {"state": outcome.state.value, "code": outcome.code, "text": outcome.text}
        for address, outcome in outcomes.items()
    }


def _words(outcomes: Mapping[str, RecipientOutcome]) -> str:
    """What the provider said of those that it did not accept."""
    return "; ".join(
        f"{address}: {outcome.code} {outcome.text}".strip()
        for address, outcome in outcomes.items()
        if outcome.state is not State.ACCEPTED
    )
