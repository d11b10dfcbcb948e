"""The SMTP server of the demo, and what it wrote down."""

from __future__ import annotations

import base64
import json
import re
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from examples.demo.received import Received
from outbox_mail.embedded import ports

_SHOWN_MAILS: Final = 500
_JOURNALS_KEPT: Final = 5
_MESSAGE_ID: Final = re.compile(r"<([0-9a-f]{32})@.+>")


class MailServer:
    """Accepts mail and delivers none. Its journal is the demo's witness: each mail is in it before it is acknowledged.

    Addresses that begin with ``refused`` get 550; those that begin with ``greylisted`` 451 the first two times. Safe
    from any thread.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = ports.pick()
        self._journal = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
        self._read_bytes = 0
        self._count = 0
        self._last: deque[Received] = deque(maxlen=_SHOWN_MAILS)
        self._by_id: Counter[str] = Counter()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Make the journal, and forget those of runs long ago."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(self._folder.glob("*.jsonl"))[: -_JOURNALS_KEPT or None]:
            old.unlink()
        self._journal.write_bytes(b"")

    @property
    def url(self) -> str:
        """As the service's provider URL."""
        return f"smtp://127.0.0.1:{self._port}?tls=none"

    @property
    def command(self) -> Sequence[str]:
        """What runs it; started again it is the same server with the same journal."""
        sink = [sys.executable, "-m", "outbox_mail.testing.sink"]
        return [*sink, "--port", str(self._port), "--journal", str(self._journal), "--journal-data"]

    def listens(self) -> bool:
        """Whether it takes connections."""
        return listens(self._port)

    def received(self) -> list[Received]:
        """The last mails that it took in this run, in the order of arrival."""
        with self._lock:
            self._catch_up()
            return list(self._last)

    def accepted(self) -> Counter[UUID]:
        """How often it took each message in this run, by the Message-ID. Raises ``ValueError`` for a foreign one."""
        with self._lock:
            self._catch_up()
            return Counter({_row_id(message_id): count for message_id, count in self._by_id.items()})

    def _catch_up(self) -> None:
        with self._journal.open("rb") as journal:
            journal.seek(self._read_bytes)
            for line in journal:
                if not line.endswith(b"\n"):  # being written at this moment
                    break
                self._read_bytes += len(line)
                entry = json.loads(line)
                self._count += 1
                self._by_id[entry["message_id"]] += 1
                self._last.append(
                    Received(self._count, entry["sender"], entry["recipients"], base64.b64decode(entry["data"]))
                )


def listens(port: int) -> bool:
    """Whether something listens on the port of 127.0.0.1."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def _row_id(message_id: str) -> UUID:
    found = _MESSAGE_ID.fullmatch(message_id)
    if not found:
        raise ValueError(f"a mail came with the Message-ID {message_id!r}, which names no row")
    return UUID(found[1])
