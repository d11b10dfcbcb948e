"""Free ports of 127.0.0.1."""

from __future__ import annotations

import secrets
import socket

from outbox_mail.errors import EmbeddedError

LOOPBACK = "127.0.0.1"

# Below the range from which Linux takes the ports of outgoing connections (32768 and up). There, a client that tries
# to reach a server which is down can be given the server's own port, and then it is connected to itself.
_FIRST = 20_000
_LAST = 32_000
_TRIES = 200
_HIGHEST = 65_535


def is_possible(port: int) -> bool:
    """Whether there is such a port."""
    return 1 <= port <= _HIGHEST


def is_free(port: int) -> bool:
    """Whether a server could listen there at this moment; another may be quicker."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def pick() -> int:
    """A port that is free at this moment. Raises EmbeddedError when none is found."""
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(_LAST - _FIRST)
        if is_free(port):
            return port
    raise EmbeddedError(f"No free port was found on {LOOPBACK} between {_FIRST} and {_LAST}. Give one: port=….")
