"""The real command ``outbox-mail`` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outbox_mail.settings import ENV_PREFIX

COMMAND: Final = Path(sys.executable).parent / "outbox-mail"
_MOST_SECONDS: Final = 60


@dataclass(frozen=True)
class Ran:
    """What the command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one line of JSON and nothing else."""
        if self.out.count("\n") != 1:
            raise AssertionError(self)
        return json.loads(self.out)


class Command:
    """``run("list", "--json")``; more settings by keyword, None takes one away."""

    def __init__(self, **settings: str | None) -> None:
        self._settings = settings

    def __call__(self, *arguments: str, stdin: str | None = None, **settings: str | None) -> Ran:
        """Run it and wait for its end. A traceback is an ``AssertionError``."""
        done = subprocess.run(  # noqa: S603 - the arguments are the test's own
            [COMMAND, *arguments],
            input=stdin or "",
            env=self.environment(**settings),
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
            check=False,
        )
        if "Traceback" in done.stderr:
            raise AssertionError(done.stderr)
        return Ran(done.returncode, done.stdout, done.stderr)

    def environment(self, **settings: str | None) -> Mapping[str, str]:
        """This process's environment with no settings but those given."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
        return kept | {name: value for name, value in (self._settings | settings).items() if value is not None}
