"""One SMTP dialogue, strict in what it takes: whatever a client may not do is written down as a violation."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from outbox_mail.testing.sink.behaviour import Behaviour, Fault, Step, Way

_MAIL: Final = re.compile(rb"MAIL FROM:<([^<>]*)>((?: [!-~]+)*)", re.IGNORECASE)
_RCPT: Final = re.compile(rb'RCPT TO:<("(?:[^"\\]|\\.)*"@[^<>]+|[^<>]+)>', re.IGNORECASE)
# Commands behind which nothing may follow in the same write (RFC 2920 §3.1).
_LAST_IN_GROUP: Final = frozenset({b"EHLO", b"HELO", b"DATA", b"NOOP", b"QUIT", b"STARTTLS", b"AUTH"})


class Ledger(Protocol):
    """Where a dialogue writes what happened."""

    behaviour: Behaviour

    def accept(self, sender: str, recipients: list[str], data: bytes) -> str:
        """Write an accepted mail down; returns its queue id."""
        ...

    def violate(self, what: str) -> None:
        """Write down what the client should not have done."""
        ...


class _ClosedError(Exception):
    """The dialogue is over."""


@dataclass
class _Envelope:
    sender: str
    recipients: list[str]
    eight_bit: bool


class Connection:
    """Serves one client until it leaves, or a fault ends it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ledger: Ledger) -> None:
        self._reader = reader
        self._writer = writer
        self._ledger = ledger
        self._behaviour = ledger.behaviour
        self._buffer = bytearray()
        self._answers: list[bytes] = []
        self._envelope: _Envelope | None = None
        self._protected = self._behaviour.implicit_tls
        self._known = False
        self._commands: dict[bytes, Callable[[bytes], Awaitable[None]]] = {
            b"EHLO": self._on_ehlo,
            b"HELO": self._on_helo,
            b"STARTTLS": self._on_starttls,
            b"AUTH": self._on_auth,
            b"MAIL": self._on_mail,
            b"RCPT": self._on_rcpt,
            b"DATA": self._on_data,
            b"RSET": self._on_rset,
            b"NOOP": self._on_noop,
            b"QUIT": self._on_quit,
        }

    async def serve(self) -> None:
        """The whole dialogue."""
        try:
            if not await self._struck(Step.CONNECT):
                self._say(b"220 sink.test ESMTP\r\n")
            while True:
                line = await self._line()
                verb = line.split(b" ", 1)[0].upper()
                command = self._commands.get(verb)
                if command is None:
                    self._say(b"500 5.5.1 not a command\r\n")
                    continue
                if verb in _LAST_IN_GROUP and self._buffer:
                    self._ledger.violate(f"{verb.decode()} was not the last of its group")
                if Step.__members__.get(verb.decode()) and await self._struck(Step(verb.decode().lower())):
                    continue
                await command(line)
        except (_ClosedError, ConnectionError, OSError):
            pass
        finally:
            self._writer.close()

    def _say(self, answer: bytes) -> None:
        self._answers.append(answer)

    async def _flush(self) -> None:
        if self._answers:
            if self._behaviour.round_trip_seconds:
                await asyncio.sleep(self._behaviour.round_trip_seconds)
            self._writer.write(b"".join(self._answers))
            self._answers.clear()
            await self._writer.drain()

    async def _receive(self) -> None:
        await self._flush()
        received = await self._reader.read(262144)
        if not received:
            raise _ClosedError
        self._buffer += received

    async def _line(self) -> bytes:
        if self._buffer and self._answers and not self._behaviour.offers("PIPELINING"):
            self._ledger.violate("commands were pipelined without the offer")
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > 16384:
                self._ledger.violate("a command line without end")
                raise _ClosedError
            await self._receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    async def _struck(self, step: Step) -> bool:
        """Whether a fault took the place of the ordinary answer."""
        fault = self._behaviour.fault_at(step)
        if fault is None:
            return False
        await self._flush()
        return await self._strike(fault)

    async def _strike(self, fault: Fault) -> bool:
        if fault.way is Way.DELAY:
            await asyncio.sleep(fault.seconds)
            return False
        if fault.way is Way.SILENCE:
            while await self._reader.read(65536):
                pass
            raise _ClosedError
        if fault.way is Way.DRIP:
            for byte in fault.reply:
                self._writer.write(bytes([byte]))
                await self._writer.drain()
                await asyncio.sleep(fault.seconds)
        elif fault.way is not Way.CLOSE:
            self._writer.write(fault.reply)
            await self._writer.drain()
        if fault.way in {Way.CLOSE, Way.REPLY_AND_CLOSE}:
            raise _ClosedError
        return True

    async def _on_ehlo(self, _line: bytes) -> None:
        behaviour = self._behaviour
        if not behaviour.extensions:
            self._say(b"502 5.5.1 EHLO is not known here\r\n")
            return
        keywords = list(behaviour.extensions)
        if behaviour.tls and not self._protected:
            keywords.append("STARTTLS")
        if behaviour.credentials:
            keywords.append(f"AUTH {' '.join(behaviour.mechanisms)}")
        lines = ["sink.test", *keywords]
        self._say("".join(f"250{'-' if line is not lines[-1] else ' '}{line}\r\n" for line in lines).encode())
        self._envelope = None

    async def _on_helo(self, _line: bytes) -> None:
        self._say(b"250 sink.test\r\n")
        self._envelope = None

    async def _on_starttls(self, _line: bytes) -> None:
        if not self._behaviour.tls or self._protected:
            self._say(b"503 5.5.1 no TLS\r\n")
            return
        self._say(b"220 2.0.0 go ahead\r\n")
        await self._flush()
        self._buffer.clear()
        await self._writer.start_tls(self._behaviour.tls)
        self._protected = True

    async def _on_auth(self, line: bytes) -> None:
        words = line.split(b" ")
        if words[1:2] == [b"PLAIN"] and len(words) == 3:
            given = base64.b64decode(words[2]).split(b"\0")[1:]
        elif words[1:2] == [b"LOGIN"]:
            given = []
            for prompt in (b"334 VXNlcm5hbWU6\r\n", b"334 UGFzc3dvcmQ6\r\n"):
                self._say(prompt)
                given.append(base64.b64decode(await self._line()))
        else:
            self._say(b"504 5.5.4 mechanism unknown\r\n")
            return
        if self._behaviour.tls and not self._protected:
            self._ledger.violate("a password was sent in the clear although TLS is offered")
        wanted = [part.encode() for part in self._behaviour.credentials or ()]
        self._known = given == wanted
        self._say(b"235 2.7.0 welcome\r\n" if self._known else b"535 5.7.8 wrong user name or password\r\n")

    async def _on_mail(self, line: bytes) -> None:
        if self._envelope:
            self._ledger.violate("MAIL inside a transaction")
            self._say(b"503 5.5.1 nested MAIL\r\n")
            return
        if self._behaviour.credentials and not self._known:
            self._say(b"530 5.7.0 authentication required\r\n")
            return
        found = _MAIL.fullmatch(line)
        if not found:
            self._ledger.violate(f"malformed: {line!r}")
            self._say(b"501 5.5.4 malformed\r\n")
            return
        parameters = found[2].decode().upper().split()
        for parameter in parameters:
            keyword = "8BITMIME" if parameter == "BODY=8BITMIME" else parameter.partition("=")[0]
            if not self._behaviour.offers(keyword):
                self._ledger.violate(f"{parameter} without the offer")
                self._say(b"555 5.5.4 parameter unknown\r\n")
                return
        if not line.isascii() and "SMTPUTF8" not in parameters:
            self._ledger.violate("an address in UTF-8 without SMTPUTF8")
        self._envelope = _Envelope(found[1].decode("utf-8", "replace"), [], "BODY=8BITMIME" in parameters)
        self._say(b"250 2.1.0 OK\r\n")

    async def _on_rcpt(self, line: bytes) -> None:
        found = _RCPT.fullmatch(line)
        if not found:
            self._ledger.violate(f"malformed: {line!r}")
            self._say(b"501 5.5.4 malformed\r\n")
        elif not self._envelope:
            self._say(b"503 5.5.1 MAIL first\r\n")
        else:
            recipient = found[1].decode("utf-8", "replace")
            answer = self._behaviour.reply_to(recipient)
            if answer.startswith(b"2"):
                self._envelope.recipients.append(recipient)
            self._say(answer)

    async def _on_data(self, _line: bytes) -> None:
        if not self._envelope:
            self._say(b"503 5.5.1 MAIL first\r\n")
            return
        if not self._envelope.recipients:
            self._say(b"554 5.5.1 no valid recipients\r\n")
            return
        self._say(b"354 go ahead\r\n")
        data = await self._body()
        envelope, self._envelope = self._envelope, None
        self._inspect(data, envelope)
        if await self._struck(Step.END):
            return
        if self._behaviour.latency_seconds:
            await asyncio.sleep(self._behaviour.latency_seconds)
        queued = self._ledger.accept(envelope.sender, envelope.recipients, data)
        if await self._struck(Step.ACCEPTED):
            return
        self._say(f"250 2.0.0 OK: queued as {queued}\r\n".encode())
        if self._behaviour.faults:
            await self._flush()
            await self._struck(Step.REPLIED)

    async def _body(self) -> bytes:
        while not self._buffer:
            await self._receive()
        await self._struck(Step.BODY)
        buffer = self._buffer
        searched = 0
        while not buffer.startswith(b".\r\n"):
            if (end := buffer.find(b"\r\n.\r\n", searched)) >= 0:
                data = bytes(buffer[: end + 2])
                del buffer[: end + 5]
                return (data[1:] if data.startswith(b".") else data).replace(b"\r\n.", b"\r\n")
            searched = max(0, len(buffer) - 4)
            await self._receive()
        del buffer[:3]
        return b""

    def _inspect(self, data: bytes, envelope: _Envelope) -> None:
        if not data.count(b"\n") == data.count(b"\r") == data.count(b"\r\n"):
            self._ledger.violate("a lone CR or LF in the data")
        if not envelope.eight_bit and not data.isascii():
            self._ledger.violate("8-bit data without BODY=8BITMIME")

    async def _on_rset(self, _line: bytes) -> None:
        self._envelope = None
        self._say(b"250 2.0.0 OK\r\n")

    async def _on_noop(self, _line: bytes) -> None:
        self._say(b"250 2.0.0 OK\r\n")

    async def _on_quit(self, _line: bytes) -> None:
        self._say(b"221 2.0.0 bye\r\n")
        await self._flush()
        raise _ClosedError
