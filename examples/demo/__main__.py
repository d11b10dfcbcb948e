"""``python -m examples.demo``: see ``--help``, and ``docs/architecture/demo.md``."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from types import FrameType

import psycopg
from rich.console import Console

from examples.demo.options import Options, parse
from examples.demo.programs import NotReadyError
from examples.demo.run import Run
from examples.demo.stage import AlreadyRunningError, Stage
from examples.demo.view import print_outcome
from outbox_mail.errors import EmbeddedError


def main() -> int:
    """Run it. 0: everything was as it should be. 1: something was not. 2: it could not start."""
    options = parse(sys.argv[1:])
    interrupted = threading.Event()

    def stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what signal handlers are given
        # The second time the default acts at once; the children die with this process anyway.
        signal.signal(signum, signal.SIG_DFL)
        interrupted.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    try:
        return _demo(options, interrupted)
    except (AlreadyRunningError, NotReadyError, EmbeddedError) as problem:
        print(problem, file=sys.stderr)
        return 2
    except psycopg.OperationalError as problem:
        print(f"PostgreSQL is gone ({problem}). See server.log in {options.folder / 'postgres'}", file=sys.stderr)
        return 1


def _demo(options: Options, interrupted: threading.Event) -> int:
    started_at = time.monotonic()
    print(f"Starting PostgreSQL, Redis and the rest; their logs: {options.folder / 'logs'}", file=sys.stderr)
    with Stage(options.folder) as stage:
        run = Run(options, stage, interrupted)
        run.watch()
        outcome = run.outcome()
    seconds = time.monotonic() - started_at
    print_outcome(Console(stderr=options.json), outcome, seconds)
    if options.json:
        print(json.dumps(outcome.as_json() | {"orders": run.story.orders, "seconds": round(seconds, 1)}), flush=True)
    return 0 if outcome.ok else 1


sys.exit(main())
