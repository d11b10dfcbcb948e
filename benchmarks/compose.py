"""Composing against ``EmailMessage`` + ``as_bytes(policy=SMTP)``: ``python -m benchmarks.compose [--json]``.

Both make the same mail, by turns, in one process; a ratio is the median over the turns of their times in that turn.
Times are CPU time, so that other work on the machine does not decide. Exits 1 when a ratio is below its target.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final
from uuid import UUID

from outbox_mail.mail.compose import LoadedAttachment, RenderedContent, compose
from outbox_mail.mail.message import Message

ROUNDS: Final = 30
DATED: Final = datetime(2026, 3, 5, 12, 30, tzinfo=UTC)
MESSAGE: Final = Message(
    id=UUID("0198f0a1-2b3c-7d4e-8f50-61728394a5b6"),
    to=["Ayşe Yılmaz <ayse@example.com>"],
    cc=[],
    bcc=[],
    template="ORDER_CONFIRMED",
    parameters={},
    schema_version=1,
    attachments=[],
    created_at=DATED,
    claims=1,
    attempt_count=0,
)
_LINES: Final = ("Merhaba Ayşe, 42 numaralı siparişiniz yola çıktı.", "Hello Ada, your order number 42 is on its way.")
TURKISH, ENGLISH = (
    RenderedContent(
        subject=line,
        text="\n".join([line] * 12) + "\n",
        html="<html><body>\n" + f"<p style='color:#333'>{line}</p>\n" * (5000 // (len(line) + 30)) + "</body></html>\n",
    )
    for line in _LINES
)
FILE: Final = LoadedAttachment("invoice.pdf", "application/pdf", random.Random(1).randbytes(100_000))


def ours(content: RenderedContent, *files: LoadedAttachment) -> bytes:
    """What this library does for one mail."""
    return compose(
        MESSAGE, content, files, default_sender="Shop <shop@example.com>", message_id_domain="mail.example.com"
    ).data


def theirs(content: RenderedContent, *files: LoadedAttachment) -> bytes:
    """The same mail by the standard library."""
    mail = EmailMessage()
    mail["From"] = Address("Shop", addr_spec="shop@example.com")
    mail["To"] = Address("Ayşe Yılmaz", addr_spec="ayse@example.com")
    mail["Subject"] = content.subject
    mail["Date"] = format_datetime(DATED)
    mail["Message-ID"] = f"<{MESSAGE.id.hex}@mail.example.com>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(content.text or "")
    mail.add_alternative(content.html or "", subtype="html")
    for file in files:
        maintype, _, subtype = file.content_type.partition("/")
        mail.add_attachment(file.data, maintype=maintype, subtype=subtype, filename=file.filename)
    return mail.as_bytes(policy=SMTP)


@dataclass(frozen=True, slots=True)
class Case:
    """One mail, and how much faster ours has to be."""

    name: str
    content: RenderedContent
    files: tuple[LoadedAttachment, ...]
    target: float


CASES: Final = (
    Case("text_html", TURKISH, (), 10),
    Case("text_html_ascii", ENGLISH, (), 10),
    Case("attachment_100kb", TURKISH, (FILE,), 5),
)


def _microseconds(make: Callable[..., bytes], case: Case, times: int) -> float:
    start = time.process_time_ns()
    for _ in range(times):
        make(case.content, *case.files)
    return (time.process_time_ns() - start) / times / 1000


def measure(case: Case, rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Median µs of ours and of theirs, and the median ratio of the two in one turn."""
    times = 5 if case.files else 20
    turns = []
    for _ in range(rounds):
        gc.collect()
        turns.append((_microseconds(ours, case, times * 10), _microseconds(theirs, case, times)))
    return (
        statistics.median(mine for mine, _ in turns),
        statistics.median(other for _, other in turns),
        statistics.median(other / mine for mine, other in turns),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run all cases; 0 when every target is met."""
    parser = argparse.ArgumentParser(description="Composing against the standard library.")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(arguments)
    ratios = {}
    print(f"{'mail':<18}{'ours µs':>10}{'stdlib µs':>12}{'ratio':>8}{'target':>8}")
    for case in CASES:
        mine, other, ratio = measure(case)
        ratios[case.name] = ratio
        print(f"{case.name:<18}{mine:>10.1f}{other:>12.1f}{ratio:>8.1f}{case.target:>8.1f}")
    targets = {case.name: case.target for case in CASES}
    ok = all(ratios[name] >= target for name, target in targets.items())
    if options.json:
        rounded = {name: round(ratio, 2) for name, ratio in ratios.items()}
        print(json.dumps({"name": "compose", "ratios": rounded, "targets": targets, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
