"""The reference says what the code does: generated blocks are as the code is now, and no name is missing."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from outbox_mail import errors
from outbox_mail.operations import actions
from outbox_mail.settings import Settings

GENERATED = ["cli", "settings", "metrics", "signals", "errors"]
HOW = "Run: .venv/bin/python docs/generate.py"


@pytest.fixture(scope="module")
def generator(root: Path) -> dict[str, Any]:
    return runpy.run_path(str(root / "docs/generate.py"))


@pytest.mark.parametrize("name", GENERATED)
def test_what_follows_from_the_code_is_as_the_code_is(root: Path, generator: dict[str, Any], name: str) -> None:
    page = (root / f"docs/reference/{name}.md").read_text()

    assert "<!-- generated: " in page
    assert generator["filled"](page) == page, HOW


def test_every_block_stands_on_some_page(root: Path, generator: dict[str, Any]) -> None:
    pages = "".join((root / f"docs/reference/{name}.md").read_text() for name in GENERATED)

    assert set(re.findall(r"<!-- generated: (\w+) -->", pages)) == set(generator["BLOCKS"])


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_every_command_and_option_says_what_it_does(root: Path) -> None:
    page = (root / "docs/reference/cli.md").read_text()

    assert [line for line in page.splitlines() if line.startswith("| ") and line.endswith("|  |")] == []


def literal_codes(root: Path) -> set[str]:
    """Every error code that stands in the code as such."""
    kinds: list[type[Exception]] = [errors.DeliveryError, *errors.DeliveryError.__subclasses__()]
    places = {kind.__name__: 0 for kind in kinds}
    places["Failure"] = 1
    found = {actions.DISCARDED}
    for package in ("outbox_mail", "relay", "tasks"):
        for path in (root / package).rglob("*.py"):
            source = path.read_text()
            found |= set(re.findall(r"error_code = '(\w+)'", source))
            found |= set(re.findall(r"(?:THEN|ELSE) '(\w+)'(?: END)?(?=[^;]{0,200} AS code)", source))
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in places:
                    given = node.args[places[node.func.id] :][:1]
                    found |= {
                        arg.value for arg in given if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                    }
    return found


def test_every_error_code_is_documented(root: Path) -> None:
    pages = [(root / f"docs/reference/{name}.md").read_text() for name in ("errors", "providers")]
    documented = {code for page in pages for code in re.findall(r"^\| `(\w+)`", page, re.MULTILINE)}

    found = literal_codes(root)
    assert {"expired", "cancelled", "poison", "lease_expired", "template_error", "attachment_missing"} <= found
    assert sorted(found - documented) == []


def test_every_exception_is_in_one_tree_and_documented(root: Path) -> None:
    page = (root / "docs/reference/errors.md").read_text()
    raised = set()
    for path in (root / "outbox_mail").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any("OutboxMailError" in ast.unparse(base) for base in node.bases):
                raised.add(node.name)

    assert [name for name in sorted(raised) if f"`{name}`" not in page] == []
