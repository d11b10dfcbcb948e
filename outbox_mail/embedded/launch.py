"""A small program that prepares a process and then becomes the server by exec. Run by path, never imported.

It exists because none of this may happen in the owner itself, and because Python code between fork and exec of a
process with threads can deadlock. Arguments: the owner's pid, the signal to get when the owner dies, the data folder
of a server that refuses to run as root (or ""), then the server's command.

Standard library only: it runs isolated (``-I -S``), so that it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from pathlib import Path

# Constants of the Linux kernel's user interface: prctl(2), unshare(2), capset(2).
_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CLONE_NEWUSER = 0x10000000
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1

_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    """Tie this process to its owner, leave root where asked, and become the server."""
    owner, death_signal, folder, *command = arguments
    # A shell that starts its jobs with signals ignored, or an owner that blocks some, must not make a server deaf.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o077)
    if folder:
        _be_somebody_else_than_root(Path(folder))
    # After the change of user, which clears it.
    if _LINUX:
        _call("prctl", _PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != int(owner):
        sys.exit("the process that started this is gone already")
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def _be_somebody_else_than_root(folder: Path) -> None:
    """PostgreSQL's programs refuse uid 0, and initdb also refuses a uid that has no name.

    Whoever owns the data stays its owner. Root's own data is served from a private user namespace in which root has
    another number; where that is denied (many containers) the data is given to a user without privileges.
    """
    uid = os.geteuid()
    if uid != 0:
        if not _has_name(uid) and _namespace_allowed():
            _enter_namespace()
        return
    owner = folder.stat().st_uid
    if owner == 0:
        if _namespace_allowed():
            _enter_namespace()
            return
        owner = _nobody().pw_uid
        for path, folders, files in os.walk(folder):
            for name in (*folders, *files):
                os.chown(Path(path, name), owner, -1, follow_symlinks=False)
        os.chown(folder, owner, -1)
    _become(owner)


def _namespace_allowed() -> bool:
    # Tried in a child: after a half-way failure there is no way back.
    if not _LINUX:
        return False
    child = os.fork()
    if child == 0:
        try:
            _enter_namespace()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _enter_namespace() -> None:
    """See user_namespaces(7): one user is mapped, and setgroups must be denied before gid_map may be written."""
    uid, gid, inside = os.geteuid(), os.getegid(), _nobody().pw_uid
    _call("unshare", _CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", "ascii")
    Path("/proc/self/uid_map").write_text(f"{inside} {uid} 1", "ascii")
    Path("/proc/self/gid_map").write_text(f"{inside} {gid} 1", "ascii")


def _become(uid: int) -> None:
    gid = pwd.getpwuid(uid).pw_gid if _has_name(uid) else uid
    if _LINUX:
        _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if _LINUX:
        # The programs and the data may lie below a folder that only root may enter, such as /root. Root could open
        # them itself, so the server keeps this one power of root's; where even root lacks it, it does without.
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        bit = 1 << _CAP_DAC_OVERRIDE
        sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
        if _libc.capset(header, sets) == 0:
            _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)


def _nobody() -> pwd.struct_passwd:
    users = [user for user in pwd.getpwall() if user.pw_uid != 0]
    if not users:
        sys.exit("PostgreSQL refuses to run as root, and this system has no other user: add one")
    return next((user for user in users if user.pw_name == "nobody"), users[0])


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _call(function: str, *arguments: int) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(f"could not start {sys.argv[4]}: {error}")
