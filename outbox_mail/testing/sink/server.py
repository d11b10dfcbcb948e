"""The sink as a server in a thread, with its ledger."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Self

from outbox_mail.testing.sink.behaviour import Behaviour
from outbox_mail.testing.sink.connection import Connection

_MESSAGE_ID: Final = re.compile(rb"^Message-ID:\s*(<[^<>\r\n]*>)", re.IGNORECASE | re.MULTILINE)
_START_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """One mail that got, or was about to get, the final 250. ``accepted_at`` is in seconds since the epoch."""

    message_id: str
    sender: str
    recipients: tuple[str, ...]
    accepted_at: float
    data: bytes = field(repr=False)


class Sink:
    """Listens on 127.0.0.1 from ``start`` to ``stop``, or within ``with``.

    ``journal``: a file to which each accepted mail is appended as one line of JSON (``message_id``, ``accepted_at``,
    ``sender``, ``recipients``, ``bytes``; ``data`` in base64 if ``journal_data``) before the client is told; it
    outlives the death of this process, though not of the machine. ``keep``: also keep the mails in ``accepted``.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        port: int = 0,
        journal: Path | None = None,
        journal_data: bool = False,
        keep: bool = True,
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.port = port
        """The port it listens on, once started."""
        self.connections = 0
        """How many were opened so far."""
        self._journal_path = journal
        self._journal_data = journal_data
        self._journal: BinaryIO | None = None
        self._keep = keep
        self._accepted: list[Accepted] = []
        self._violations: list[str] = []
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """The provider URL that leads here, without credentials."""
        if self.behaviour.implicit_tls:
            return f"smtps://localhost:{self.port}"
        return f"smtp://localhost:{self.port}" if self.behaviour.tls else f"smtp://127.0.0.1:{self.port}?tls=none"

    @property
    def accepted(self) -> list[Accepted]:
        """Every accepted mail, in order."""
        with self._changed:
            return list(self._accepted)

    @property
    def violations(self) -> list[str]:
        """What clients did that no client may do."""
        with self._changed:
            return list(self._violations)

    def wait_for(self, count: int, timeout_seconds: float = 10.0) -> list[Accepted]:
        """Wait until ``count`` mails are accepted; raises ``TimeoutError`` that tells how many there are."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._accepted) >= count, timeout_seconds):
                raise TimeoutError(f"{len(self._accepted)} of {count} mails were accepted in {timeout_seconds:g} s")
            return list(self._accepted)

    def start(self) -> Self:
        """Listen; returns when the port is open."""
        ready = threading.Event()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(self._serve(ready))
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                failed.append(error)
            finally:
                ready.set()

        if self._journal_path:
            self._journal = self._journal_path.open("ab", buffering=0)
        self._thread = threading.Thread(target=run, name="smtp-sink", daemon=True)
        self._thread.start()
        if not ready.wait(_START_SECONDS):
            raise TimeoutError("the sink did not start")
        if failed:
            raise failed[0]
        return self

    def stop(self) -> None:
        """Close all connections and stop listening; ``start`` may be called again, on the same port."""
        if self._loop and self._stopping:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread:
            self._thread.join(_START_SECONDS)
        if self._journal:
            self._journal.close()
        self._loop = self._stopping = self._thread = self._journal = None

    def drop_connections(self, last_words: bytes = b"") -> None:
        """Close every open connection, as a server does with those that idle."""

        done = threading.Event()

        def drop() -> None:
            for writer in self._writers:
                if last_words:
                    writer.write(last_words)
                writer.close()
            done.set()

        if self._loop:
            self._loop.call_soon_threadsafe(drop)
            done.wait(_START_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def accept(self, sender: str, recipients: list[str], data: bytes) -> str:
        """Write an accepted mail down; returns its queue id."""
        found = _MESSAGE_ID.search(data, 0, data.find(b"\r\n\r\n") + 2)
        mail = Accepted(
            found[1].decode("ascii", "replace") if found else "", sender, tuple(recipients), time.time(), data
        )
        if self._journal:
            entry: dict[str, object] = {
                "message_id": mail.message_id,
                "accepted_at": mail.accepted_at,
                "sender": sender,
                "recipients": recipients,
                "bytes": len(data),
            }
            if self._journal_data:
                entry["data"] = base64.b64encode(data).decode()
            self._journal.write(json.dumps(entry).encode() + b"\n")
        with self._changed:
            if self._keep:
                self._accepted.append(mail)
            self._changed.notify_all()
        return f"SINK{next(self._numbers):08d}"

    def violate(self, what: str) -> None:
        """Write down what the client should not have done."""
        with self._changed:
            self._violations.append(what)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        tls = self.behaviour.tls if self.behaviour.implicit_tls else None
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=tls, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stopping.wait()
        server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            with contextlib.suppress(asyncio.CancelledError):  # only at stop; else asyncio logs it as a fault
                await Connection(reader, writer, self).serve()
        finally:
            self._writers.discard(writer)
