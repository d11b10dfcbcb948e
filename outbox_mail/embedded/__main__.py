"""Both servers until Ctrl-C: ``python -m outbox_mail.embedded --folder .state``."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from outbox_mail.embedded.postgres import PostgresServer
from outbox_mail.embedded.redis import RedisServer
from outbox_mail.errors import EmbeddedError

_LOOK_SECONDS = 0.5


def main(arguments: list[str] | None = None) -> int:
    """Print the two URLs as shell exports, then wait. 0 after Ctrl-C or SIGTERM; 1 when a server fails or ends."""
    parser = argparse.ArgumentParser(prog="python -m outbox_mail.embedded", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(".state"), help="where data stays between runs (%(default)s)"
    )
    parser.add_argument("--postgres-port", type=int, help="default: a free one, kept between runs")
    parser.add_argument("--redis-port", type=int, help="default: a free one, kept between runs")
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with (
            PostgresServer(options.folder / "postgres", port=options.postgres_port) as postgres,
            RedisServer(options.folder / "redis", port=options.redis_port, persistent=True) as redis,
        ):
            sys.stdout.write(
                f"export OUTBOX_MAIL_DATABASE_URL={postgres.url}\nexport OUTBOX_MAIL_BROKER_URL={redis.url}\n"
            )
            sys.stdout.flush()
            pause = threading.Event()
            while postgres.running and redis.running:
                pause.wait(_LOOK_SECONDS)
    except EmbeddedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 0
    sys.stderr.write(
        f"A server ended by itself; see server.log in {options.folder}/postgres and {options.folder}/redis.\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
