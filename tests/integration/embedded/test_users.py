"""The same start as root, as root where user namespaces are denied, as a plain user, as a user without a name."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import outbox_mail

_CHECKOUT = Path(outbox_mail.__file__).parent.parent
_NOBODY = 65_534
_NAMELESS = 54_321

# Denies what Docker's default seccomp profile denies to root: unshare(2); and drops what it drops: SYS_ADMIN and
# SYS_PTRACE. The filter is four instructions: load the call's number; unshare? errno EPERM : allow. See seccomp(2).
_DENY_NAMESPACES = """
import ctypes, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
unshare = {"x86_64": 272, "aarch64": 97}[platform.machine()]
code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, unshare, 0x06, 0, 0, 0x00050001, 0x06, 0, 0, 0x7FFF0000)
instructions = ctypes.create_string_buffer(code)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(4, ctypes.cast(instructions, ctypes.c_void_p))
if os.geteuid() != 0:
    assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, os.strerror(ctypes.get_errno())
if os.geteuid() == 0:
    for capability in (19, 21):
        assert libc.prctl(24, capability, 0, 0, 0) == 0
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    for index in range(3):
        sets[index] &= ~(1 << 19 | 1 << 21)
    assert libc.capset(header, sets) == 0
"""

# Two runs on one folder, the second after a crash; says what was seen as JSON.
_SCENARIO = """
import json, os, sys
from pathlib import Path
from outbox_mail.embedded import PostgresServer, RedisServer
import psycopg

seen = {"me": os.geteuid(), "owners": []}
folder = Path(sys.argv[1])
postgres = PostgresServer(folder / "postgres", settings={"fsync": "off"})
for run in range(2):
    postgres.start()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (number int)")
        connection.execute("INSERT INTO kept VALUES (1)")
        seen["rows"] = connection.execute("SELECT count(*) FROM kept").fetchone()[0]
        seen["backend"] = os.stat(f"/proc/{connection.info.backend_pid}").st_uid
    seen["owners"].append((folder / "postgres" / "data").stat().st_uid)
    seen["server"] = os.stat(f"/proc/{postgres.pid}").st_uid
    seen["uid_map"] = Path(f"/proc/{postgres.pid}/uid_map").read_text().split()
    (postgres.kill if run == 0 else postgres.stop)()
with RedisServer(folder / "redis") as redis:
    seen["redis"] = redis.port > 0
seen["children"] = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
print(json.dumps(seen))
"""


_ONLY_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or platform.machine() not in {"x86_64", "aarch64"},
    reason="only root has to become another user, and the filter above knows two machines",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own folder, which only its owner may enter."""
    made = Path(tempfile.mkdtemp(prefix="outbox-embedded-"))
    yield made
    shutil.rmtree(made)


def _give(folder: Path, uid: int) -> None:
    if os.geteuid() == 0:
        os.chown(folder, uid, uid)


def _run_without_namespaces(folder: Path) -> dict[str, Any]:
    return _run_as(None, _DENY_NAMESPACES + _SCENARIO, folder)


def _run_as(uid: int | None, code: str, *arguments: str | Path) -> dict[str, Any]:
    done = _python(uid, code, *arguments)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def _python(uid: int | None, code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = sys.executable if uid is None else _python_for(uid)
    return _call(program, uid, code, *arguments)


def _call(program: str, uid: int | None, code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    site = next(path for path in sys.path if path.endswith("site-packages"))
    return subprocess.run(
        [program, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{_CHECKOUT}:{site}", "PYTHONDONTWRITEBYTECODE": "1"},
        user=uid,
        group=uid,
        extra_groups=None if uid is None else (),
    )


def _python_for(uid: int) -> str:
    """A Python of this version that the user may run and that finds what is installed here; else skips the test."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    tried = (sys.executable, f"/usr/local/bin/{version}", f"/usr/bin/{version}")
    for program in tried:
        try:
            if _call(program, uid, "import outbox_mail.embedded, psycopg").returncode == 0:
                return program
        except OSError:
            continue
    pytest.skip(
        f"user {uid} can run no Python that reads this checkout and what is installed: tried {', '.join(tried)}"
    )


def test_whoever_runs_the_tests_can_start_both_servers(folder: Path) -> None:
    seen = _run_as(None, _SCENARIO, folder)
    assert seen["rows"] == 2
    assert seen["owners"] == [os.geteuid()] * 2
    assert seen["server"] == seen["backend"] == os.geteuid()
    assert seen["redis"]
    assert seen["children"] == ""


def test_a_plain_user_can_start_both_servers(folder: Path) -> None:
    _give(folder, _NOBODY)
    seen = _run_as(_NOBODY, _SCENARIO, folder)
    assert seen["me"] == seen["server"] == seen["backend"] == _NOBODY
    assert seen["rows"] == 2
    # No namespace of its own: everybody keeps the number that he has.
    assert seen["uid_map"] == ["0", "0", "4294967295"]


def test_a_user_without_a_name_can_start_both_servers(folder: Path) -> None:
    # initdb looks its user up and ends when there is no such name, as in a container run with --user 54321.
    _give(folder, _NAMELESS)
    seen = _run_as(_NAMELESS, _SCENARIO, folder)
    assert seen["me"] == seen["server"] == _NAMELESS
    assert seen["rows"] == 2
    assert seen["uid_map"][1:] == [str(_NAMELESS), "1"]


@_ONLY_ROOT
def test_root_without_user_namespaces_hands_the_data_to_an_unprivileged_user(folder: Path) -> None:
    seen = _run_without_namespaces(folder)
    assert seen["me"] == 0
    assert seen["rows"] == 2
    assert seen["server"] == seen["backend"] == seen["owners"][0] == seen["owners"][1] != 0
    assert seen["children"] == ""


@_ONLY_ROOT
def test_data_that_root_made_is_served_where_namespaces_are_denied_and_afterwards_where_they_are_not(
    folder: Path,
) -> None:
    made = _run_as(None, _SCENARIO, folder)
    denied = _run_without_namespaces(folder)
    again = _run_as(None, _SCENARIO, folder)
    assert made["owners"] == [0, 0]
    assert denied["owners"][0] != 0
    assert again["owners"] == denied["owners"]
    assert [made["rows"], denied["rows"], again["rows"]] == [2, 4, 6]


@_ONLY_ROOT
def test_after_kill_9_of_root_the_server_of_an_unprivileged_user_goes_too(folder: Path) -> None:
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom outbox_mail.embedded import PostgresServer\n"
        "server = PostgresServer(Path(sys.argv[1]), settings={'fsync': 'off'}).start()\n"
        "print(server.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = _python(None, _DENY_NAMESPACES + code, folder)
    pid = int(done.stdout)
    # The next start waits for it to go, and recovers.
    seen = _run_as(None, _DENY_NAMESPACES + _SCENARIO.replace('folder / "postgres"', "folder"), folder)
    assert seen["rows"] == 2
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()


def test_a_folder_that_another_user_made_is_an_error_that_says_so(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "owner.lock").touch(0o600)
    code = (
        "import sys\nfrom pathlib import Path\nfrom outbox_mail.embedded import RedisServer\n"
        "try: RedisServer(Path(sys.argv[1])).start()\nexcept Exception as error: print(type(error).__name__, error)"
    )
    said = _python(_NOBODY, code, folder).stdout
    assert said.startswith(f"EmbeddedError Redis: the folder {folder} can't be used (Permission denied). Start as")
