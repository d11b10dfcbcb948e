"""Starting and ending a server's process, and the locks that tell whether one is there."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from outbox_mail.errors import EmbeddedError

_LAUNCHER = Path(__file__).with_name("launch.py")
_POLL_SECONDS = 0.02


def spawn(
    command: Sequence[str | Path],
    *,
    log: BinaryIO,
    death_signal: signal.Signals,
    data: Path | None = None,
    environ: Mapping[str, str] | None = None,
    lock: int | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own, so that a terminal's Ctrl-C reaches the owner alone.

    It gets ``death_signal`` when this process dies, however it dies (Linux only: prctl(2), PR_SET_PDEATHSIG). The
    kernel ties that to the thread that forked, hence EmbeddedError when called outside the main thread.
    ``data`` is the data folder of a program that refuses root. ``lock`` is a file descriptor that the process keeps
    open, and its children too. ``environ`` adds to an environment that is otherwise the same whoever calls.
    """
    if threading.current_thread() is not threading.main_thread():
        raise EmbeddedError("An embedded server must be started from the main thread: it dies with the thread.")
    arguments = [str(os.getpid()), str(int(death_signal)), str(data) if data else "", *map(str, command)]
    inherited = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return subprocess.Popen(  # noqa: S603 - no shell; the programs come from binaries.py
        [sys.executable, "-I", "-S", str(_LAUNCHER), *arguments],
        stdin=stdin,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=() if lock is None else (lock,),
        env={**inherited, "LC_ALL": "C", "TZ": "UTC", **(environ or {})},
    )


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the process and to the children it has, and wait for the process itself.

    PostgreSQL's children have sessions of their own, and a busy one outlives a killed postmaster for a while.
    """
    handles: list[int] = []
    if process.poll() is None:
        with suppress(OSError):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split()
            for child in children:
                # A handle, unlike a number, can't come to mean another process.
                with suppress(OSError):
                    handles.append(os.pidfd_open(int(child)))
        process.kill()
    for handle in handles:
        with suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
    process.wait()


def lock_file(path: Path, *, patience_seconds: float) -> int | None:
    """Lock ``path`` (made if missing) and return the open file descriptor; None if others hold it to the end.

    This is flock(2): the lock lasts until it is released by name or until every process that inherited the
    descriptor is gone. So it can't be stale, unlike a file with a process number in it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES} or time.monotonic() >= deadline:
                os.close(descriptor)
                if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                    raise
                return None
            time.sleep(_POLL_SECONDS)
        except BaseException:
            os.close(descriptor)
            raise
        else:
            return descriptor


def release(descriptor: int) -> None:
    """Give up a lock even if a forked child still has the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
