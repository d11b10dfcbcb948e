"""``python -m examples.demo.leash PARENT_PID COMMAND…``: becomes COMMAND, which the kernel kills when the parent dies.

A process of its own instead of ``preexec_fn``, which isn't safe where threads run. Linux only (prctl(2)).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for SIGKILL at the parent's death, then exec. Exits 1 when the parent is gone already."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - becoming the command is the point


main()
