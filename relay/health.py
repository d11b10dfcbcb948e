"""Whether this machine's relays get anywhere."""

from __future__ import annotations

import os
import socket
from typing import Any

from psycopg import Connection

from outbox_mail.operations.processes import Process, list_processes


def check(connection: Connection[Any], *, stale_seconds: float) -> tuple[bool, str]:
    """Whether every relay that runs on this machine, and at least one, made progress within ``stale_seconds``.

    An idle relay does: each look at the table that found nothing counts. One whose loop hangs falls silent. Relays of
    this machine that were killed are left out. Waiting for a broker that is down is healthy too: another start would
    not mend it; ``outbox-mail doctor`` and the metrics tell.
    """
    here = [p for p in list_processes(connection) if p.kind == "relay" and p.host == socket.gethostname()]
    running = [process for process in here if _runs(process.pid)]
    if not running:
        return False, f"no relay runs on {socket.gethostname()}"
    hung = [process for process in running if process.idle_seconds > stale_seconds]
    return not hung, "; ".join(map(_line, hung or running))


def _line(process: Process) -> str:
    return f"{process.name}: {process.doing}, last progress {process.idle_seconds:.1f} s ago"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
