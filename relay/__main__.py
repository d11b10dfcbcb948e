"""``python -m relay``: run the relay, publish once, or ask whether it is healthy."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

import psycopg

from outbox_mail.errors import OutboxMailError
from outbox_mail.observe.start import observe
from outbox_mail.outbox.signals import Signals
from outbox_mail.settings import Settings, load_settings
from relay import health
from relay.compose_root import compose, sessions
from relay.loop import Relay
from relay.publisher import BrokerError, redacted

LEAVE_SECONDS: Final = 8
"""How long a relay that was told to stop may take to finish its round, whatever hangs."""

_log = logging.getLogger("relay")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code is 0 when all went well, 1 when not, 2 for a wrong call or configuration."""
    parser = argparse.ArgumentParser(
        prog="python -m relay",
        description="Publish the ids of due messages to the broker. Settings are read from OUTBOX_MAIL_* variables.",
        epilog="SIGTERM and SIGINT finish the round under way and leave.",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="publish what is due, then leave")
    mode.add_argument(
        "--health", action="store_true", help="exit 0 if the relays of this machine make progress, 1 if not"
    )
    chosen = parser.parse_args(arguments)
    try:
        settings = load_settings()
        if chosen.health:
            return _health(settings)
        signals = Signals()
        relay = compose(settings, signals)
        observe(settings, signals, port=settings.relay_metrics_port, table=True)
    except OutboxMailError as error:
        print(f"relay: {error}", file=sys.stderr)  # noqa: T201 - the command's answer
        return 2
    return _run(relay, once=chosen.once)


def _run(relay: Relay, *, once: bool) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopper(relay))
    _log.info("relay_started", extra={"pid": os.getpid()})
    try:
        if once:
            published = relay.run_once()
            print(f"relay: {published} published")  # noqa: T201 - the command's answer
        else:
            relay.run()
    except (BrokerError, psycopg.Error) as error:
        print(f"relay: {redacted(error)}", file=sys.stderr)  # noqa: T201 - the command's answer
        return 1
    _log.info("relay_stopped", extra={"pid": os.getpid()})
    return 0


def _stopper(relay: Relay) -> Callable[[int, FrameType | None], None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        relay.stop()
        if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
            # A round that hangs in a dead connection is cut off: the database rolls it back, and it is published again.
            signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
            signal.setitimer(signal.ITIMER_REAL, LEAVE_SECONDS)

    return stop


def _health(settings: Settings) -> int:
    try:
        with sessions(settings).open() as connection:
            healthy, text = health.check(connection, stale_seconds=settings.health_stale_seconds)
    except psycopg.Error as error:
        healthy, text = False, f"the database can't be asked: {redacted(error)}"
    print(text, file=sys.stdout if healthy else sys.stderr)
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
