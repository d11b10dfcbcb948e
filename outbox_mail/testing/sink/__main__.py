"""``python -m outbox_mail.testing.sink``: a sink as a process; its port is the first line that it prints."""

from __future__ import annotations

import argparse
import signal
import ssl
import sys
from pathlib import Path

from outbox_mail.testing.sink.behaviour import EXTENSIONS, Behaviour, Fault, Step, Way
from outbox_mail.testing.sink.server import Sink


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m outbox_mail.testing.sink",
        description="An SMTP server on 127.0.0.1 that accepts mail, writes it down, and delivers none. Addresses that "
        "begin with refused get 550, with deferred 451, with greylisted 451 for a while.",
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--journal", type=Path, help="append each accepted mail to this file, one line of JSON each")
    parser.add_argument("--journal-data", action="store_true", help="with the whole mail in base64")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="before the final reply of each mail")
    parser.add_argument("--round-trip-ms", type=float, default=0.0, help="before each answer or group of answers")
    parser.add_argument("--greylist-times", type=int, default=2, help="451s for each greylisted address")
    parser.add_argument("--greylist-seconds", type=int, default=1, help="what the 451 asks the client to wait")
    parser.add_argument("--no-pipelining", action="store_true", help="do not offer PIPELINING")
    parser.add_argument("--no-smtputf8", action="store_true", help="do not offer SMTPUTF8")
    parser.add_argument("--certificate", type=Path, help="offer STARTTLS with this PEM file (certificate and key)")
    parser.add_argument("--implicit-tls", action="store_true", help="speak TLS from the first byte")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        type=_fault,
        metavar="STEP:WAY[:TIMES[:SKIP]]",
        help=f"misbehave TIMES times (default: always), after SKIP passes. STEP: {', '.join(Step)}. "
        "WAY: silence, close, or a reply code after which the connection is closed, such as 421",
    )
    given = parser.parse_args(arguments)
    if given.implicit_tls and not given.certificate:
        parser.error("--implicit-tls needs --certificate")
    hidden = {name for name, hide in (("PIPELINING", given.no_pipelining), ("SMTPUTF8", given.no_smtputf8)) if hide}
    behaviour = Behaviour(
        extensions=tuple(extension for extension in EXTENSIONS if extension not in hidden),
        latency_seconds=given.latency_ms / 1000,
        round_trip_seconds=given.round_trip_ms / 1000,
        greylist_times=given.greylist_times,
        greylist_hint_seconds=given.greylist_seconds,
        implicit_tls=given.implicit_tls,
        faults=given.fault,
    )
    if given.certificate:
        behaviour.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        behaviour.tls.load_cert_chain(given.certificate)
    ended = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server's thread begins, which inherits it: the signals wait for sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, ended)
    sink = Sink(behaviour, port=given.port, journal=given.journal, journal_data=given.journal_data, keep=False)
    with sink:
        sys.stdout.write(f"{sink.port}\n")
        sys.stdout.flush()
        signal.sigwait(ended)
    for violation in sorted(set(sink.violations)):
        sys.stderr.write(f"violation: {violation}\n")
    return 0


def _fault(text: str) -> Fault:
    step, way, *numbers = text.split(":")
    times = int(numbers[0]) if numbers else None
    skip = int(numbers[1]) if len(numbers) > 1 else 0
    if way.isdecimal():
        reply = f"{int(way)} fault as told\r\n".encode()
        return Fault(Step(step), Way.REPLY_AND_CLOSE, reply, times=times, skip=skip)
    return Fault(Step(step), {"silence": Way.SILENCE, "close": Way.CLOSE}[way], times=times, skip=skip)


if __name__ == "__main__":
    sys.exit(main())
