"""A few words of the Redis protocol, so that the library needs no broker client to see whether one answers.

RESP: https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from __future__ import annotations

import re
import socket
import ssl
from io import BufferedRWPair
from typing import Any, Final, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

_MAX_LINE_BYTES: Final = 4096
_MAX_ITEMS: Final = 16

_Stream: TypeAlias = "BufferedRWPair[Any, Any]"


def ask_broker(url: str, timeout_seconds: float) -> str | None:
    """Log in, PING, and return the eviction policy, None when it may not be asked.

    ``timeout_seconds`` bounds connecting and each answer. Raises ``OSError`` when nobody answers, ``ValueError`` when
    the answer is a refusal; neither text holds a secret.
    """
    # Of several sentinels the first is asked.
    parts = urlsplit(url.partition(";")[0])
    with _connect(parts, timeout_seconds) as connection, connection.makefile("rwb") as stream:
        if parts.password:
            user = [unquote(parts.username)] if parts.username else []
            _call(stream, "AUTH", *user, unquote(parts.password))
        if parts.scheme == "sentinel":
            _call(stream, "PING")
            return None
        _call(stream, "PING")
        try:
            answer = _call(stream, "CONFIG", "GET", "maxmemory-policy")
        except ValueError:
            return None
    return answer[1] if isinstance(answer, list) and len(answer) == 2 else None


def _connect(parts: SplitResult, timeout_seconds: float) -> socket.socket:
    if parts.scheme == "redis+socket":
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout_seconds)
        connection.connect(unquote(parts.path))
        return connection
    host = parts.hostname or "127.0.0.1"
    connection = socket.create_connection((host, parts.port or 6379), timeout=timeout_seconds)
    if parts.scheme != "rediss":
        return connection
    context = ssl.create_default_context()
    if "ssl_cert_reqs=none" in parts.query.lower() or "ssl_cert_reqs=cert_none" in parts.query.lower():
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection, server_hostname=host)


def _call(stream: _Stream, *words: str) -> str | list[str]:
    encoded = [word.encode() for word in words]
    stream.write(b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded))
    stream.flush()
    return _answer(stream, words[0])


def _answer(stream: _Stream, asked: str) -> str | list[str]:
    line = stream.readline(_MAX_LINE_BYTES)
    if not line.endswith(b"\r\n"):
        raise ValueError(f"no Redis answers there (to {asked})")
    kind, rest = line[:1], line[1:-2].decode("utf-8", "replace")
    if kind == b"+":
        return rest
    if kind == b"-":
        raise ValueError(f"{asked} was refused: {rest[:200]}")
    size = int(rest) if re.fullmatch("[0-9]{1,6}", rest) else -1
    if kind == b"$" and 0 <= size < _MAX_LINE_BYTES:
        return stream.read(size + 2)[:-2].decode("utf-8", "replace")
    if kind == b"*" and 0 <= size <= _MAX_ITEMS:
        return [str(_answer(stream, asked)) for _ in range(size)]
    raise ValueError(f"no Redis answers there (to {asked})")
