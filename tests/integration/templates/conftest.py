"""Folders of templates for the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from outbox_mail.mail.templates import Templates

Write = Callable[[Mapping[str, str]], Templates]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of templates."""
    made = tmp_path / "templates"
    made.mkdir()
    return made


@pytest.fixture
def write(folder: Path) -> Write:
    """Writes files by their path, and returns the templates in the folder."""

    def written(files: Mapping[str, str]) -> Templates:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return Templates([folder])

    return written
