"""The diagram of the states in the documentation is the table in status.py."""

from __future__ import annotations

import re
from pathlib import Path

from outbox_mail.outbox.status import RETAINED, TRANSITIONS


def diagram() -> str:
    lines = ["stateDiagram-v2", "    [*] --> PENDING: enqueue"]
    for transition in TRANSITIONS:
        notes = [
            note for note, holds in (("claim", transition.needs_claim), ("attempt", transition.counts_attempt)) if holds
        ]
        label = f"{transition.name} ({', '.join(notes)})" if notes else transition.name
        lines += [f"    {source} --> {transition.target}: {label}" for source in sorted(transition.sources)]
    lines += [f"    {status} --> [*]: retain" for status in sorted(RETAINED)]
    return "\n".join(lines)


def test_the_diagram_of_the_states_is_the_table(root: Path) -> None:
    page = (root / "docs/architecture/states.md").read_text()
    shown = re.search(r"generated from status\.py -->\n```mermaid\n(.*?)\n```", page, re.DOTALL)
    assert shown is not None
    assert shown[1] == diagram()
