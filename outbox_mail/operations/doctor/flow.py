"""Whether mail moves: who waits, who is stuck, who is at work."""

from __future__ import annotations

from typing import Any, Final

from psycopg import Connection

from outbox_mail.mail.outbox import MAIL
from outbox_mail.names import DOORBELL_CHANNEL
from outbox_mail.operations.doctor.check import Check, duration, ok, problem, warning
from outbox_mail.operations.holds import list_holds
from outbox_mail.operations.processes import KINDS, health
from outbox_mail.outbox.census import ages
from outbox_mail.settings import Settings

LATE_SECONDS: Final = 120.0
_NOTIFY_SECONDS: Final = 3.0
_START: Final = {
    "relay": "python -m relay",
    "worker": "celery -A tasks worker",
    "beat": "celery -A tasks beat",
}
_WITHOUT: Final = {
    "relay": "no message reaches the broker",
    "worker": "nothing is sent",
    "beat": "stuck messages are not freed and old ones not removed",
}


def oldest(connection: Connection[Any], _settings: Settings) -> Check:
    """How long the oldest due message has waited: the one number that matters."""
    waited = ages(connection, MAIL).oldest_due_pending_seconds
    if waited is None:
        return ok("oldest due PENDING", "nothing is due")
    if waited > LATE_SECONDS:
        return problem(
            "oldest due PENDING",
            f"has waited for {duration(waited)}",
            "Look at the other findings here; if all are well the workers can't keep up: start more of them",
        )
    return ok("oldest due PENDING", f"has waited for {duration(waited)}")


def stuck(connection: Connection[Any], settings: Settings) -> Check:
    """Whether claims outlive their lease: the reaper is not at work then."""
    age = ages(connection, MAIL).oldest_sending_seconds
    bound = settings.lease_seconds + 2 * settings.reap_interval_seconds
    if age is None:
        return ok("SENDING", "nothing is being sent")
    if age > bound:
        return problem(
            "SENDING",
            f"the oldest claim is {duration(age)} old, its lease is {settings.lease_seconds:g} s",
            f"The reaper does not run: see that {_START['beat']} and a worker for its queue are up",
        )
    return ok("SENDING", f"the oldest claim is {duration(age)} old")


def processes(connection: Connection[Any], settings: Settings) -> list[Check]:
    """Whether each kind of process makes progress."""
    state = health(connection, stale_seconds=settings.health_stale_seconds)
    found = []
    for kind in KINDS:
        alive, stale = state.alive.get(kind, ()), state.stale.get(kind, ())
        if alive:
            found.append(
                ok(kind, f"{len(alive)} at work, the last progress {duration(min(p.idle_seconds for p in alive))} ago")
            )
        elif stale:
            last = min(stale, key=lambda process: process.idle_seconds)
            found.append(
                problem(
                    kind,
                    f"{last.name} made no progress for {duration(last.idle_seconds)}: {_WITHOUT[kind]}",
                    f"See its log; start it again ({_START[kind]})",
                )
            )
        else:
            found.append(problem(kind, f"none has reported: {_WITHOUT[kind]}", f"Start it: {_START[kind]}"))
    return found


def holds(connection: Connection[Any], _settings: Settings) -> Check:
    """What is paused."""
    active = [hold for hold in list_holds(connection) if hold.active]
    if active:
        listed = "; ".join(
            f"{hold.scope} {hold.value}".strip() + f" by {hold.held_by}: {hold.reason}" for hold in active[:5]
        )
        return warning(
            "holds", f"{len(active)} in force: {listed}", "Lift what is no longer needed: outbox-mail resume"
        )
    return ok("holds", "none in force")


def listen(connection: Connection[Any], settings: Settings) -> Check:
    """Whether a notification comes back to the connection that asked for it; through a transaction pooler none does."""
    if settings.transaction_pooler or not settings.relay_listen:
        return ok("LISTEN", f"not used; the relay polls every {settings.relay_poll_seconds:g} s")
    channel = f"{DOORBELL_CHANNEL}_doctor"
    connection.execute(f"LISTEN {channel}")
    connection.execute(f"NOTIFY {channel}")
    heard = any(connection.notifies(timeout=_NOTIFY_SECONDS, stop_after=1))
    connection.execute(f"UNLISTEN {channel}")
    if heard:
        return ok("LISTEN", "a notification came back")
    return problem(
        "LISTEN",
        "a notification did not come back: this is a transaction pooler",
        "Set OUTBOX_MAIL_TRANSACTION_POOLER=true; the relay then polls, and no statement is prepared",
    )


CHECKS: Final = (oldest, stuck, processes, holds)
