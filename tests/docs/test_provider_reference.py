"""Every scheme, option and error code of the providers is in the reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outbox_mail.errors import ConfigurationError
from outbox_mail.mail.providers.registry import provider_from_url, schemes
from outbox_mail.mail.providers.smtp.wire import Trouble


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs/reference/providers.md").read_text()


def _first_cells(section: str) -> set[str]:
    return {name for line in section.splitlines() for name in re.findall(r"^\| `(\w+)` \|", line)}


def test_every_scheme_is_documented(page: str) -> None:
    assert [scheme for scheme in schemes() if f"`{scheme}:" not in page] == []


def test_every_option_is_documented_and_no_other(page: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        provider_from_url("smtp://host?no_such_option=1")
    known = set(str(caught.value).partition("Options are: ")[2].split(", "))
    section = page.partition("## Options of")[2].partition("\n## ")[0]
    assert _first_cells(section) == known


def test_every_error_code_is_documented_and_no_other(page: str, root: Path) -> None:
    sources = "\n".join(path.read_text() for path in (root / "outbox_mail/mail/providers").rglob("*.py"))
    raised = set(re.findall(r'ProviderError\(\s*"(\w+)"', sources)) | set(re.findall(r'"(smtp_host\w+)" if', sources))
    raised |= {trouble.value for trouble in Trouble}
    section = page.partition("## Error codes")[2].partition("\n### ")[0]
    assert _first_cells(section) - {"smtp_NNN"} == raised
