"""The written rules that tools hold: who may write a status, what an import loads, what a producer installs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

STATUS_WRITE = re.compile(
    r"""\bSET\b(?:(?!\b(?:WHERE|FROM|RETURNING)\b).)*?(?<![.\w])"?status"?\s*=(?!=)   # UPDATE … SET … status =
        |\bINSERT\s+INTO\s+email_messages\s*\([^)]*\bstatus\b""",  # INSERT INTO email_messages (… status …)
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
OWNER = Path("outbox_mail/outbox/transitions.py")


def texts(source: str) -> Iterator[str]:
    """Every string of a module, f-strings with a blank for each placeholder; docstrings included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else " _ " for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def writes_status(source: str) -> bool:
    calls = (
        keyword.arg == "status"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values"
        for keyword in node.keywords
    )
    return any(STATUS_WRITE.search(text) for text in texts(source)) or any(calls)


def shipped(root: Path) -> list[Path]:
    return [path for package in ("outbox_mail", "relay", "tasks") for path in sorted((root / package).rglob("*.py"))]


def test_only_the_transitions_write_a_status(root: Path) -> None:
    offenders = [
        path.relative_to(root)
        for path in shipped(root)
        if path.relative_to(root) != OWNER and writes_status(path.read_text())
    ]
    assert offenders == []


@pytest.mark.parametrize(
    "source",
    [
        "q = \"UPDATE email_messages SET status = 'SENT' WHERE id = 1\"",
        "q = f\"UPDATE {table} m SET locked_at = NULL, status='PENDING'\"",
        "q = 'INSERT INTO email_messages (id, status) VALUES (1, 2)'",
        "q = update(table).values(status='SENT')",
    ],
)
def test_the_rule_sees_a_status_write(source: str) -> None:
    assert writes_status(source)


@pytest.mark.parametrize(
    "source",
    [
        "q = \"SELECT 1 FROM email_messages WHERE status = 'SENT'\"",
        "q = \"UPDATE email_messages SET published_at = NULL WHERE status = 'PENDING'\"",
        "q = \"UPDATE email_messages m SET published_at = now() FROM due WHERE m.status = 'PENDING'\"",
    ],
)
def test_the_rule_lets_a_status_be_read(source: str) -> None:
    assert not writes_status(source)


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_importing_the_library_loads_no_broker_no_template_engine_and_no_provider_sdk() -> None:
    loaded = loaded_by("import outbox_mail")

    assert "sqlalchemy" in loaded
    assert not loaded & {
        "celery",
        "kombu",
        "redis",
        "jinja2",
        "boto3",
        "httpx",
        "psycopg",
        "psycopg2",
        "pydantic",
        "fsspec",
        "typer",
        "rich",
        "prometheus_client",
        "opentelemetry",
        "django",
    }


def test_importing_the_library_costs_few_modules_beyond_sqlalchemy() -> None:
    count = "import sys; {}; print(len(sys.modules))"
    counted = [
        int(subprocess.run([sys.executable, "-c", count.format(statement)], check=True, capture_output=True).stdout)
        for statement in ("import sqlalchemy", "import outbox_mail")
    ]
    assert counted[1] < counted[0] * 1.5
