"""No template can hang a worker, fill its memory, or reach anything but its parameters."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from outbox_mail.errors import ErrorClass, TemplateError
from outbox_mail.mail.templates import Limits, Templates

Write = Callable[[Mapping[str, str]], Templates]

_PROGRAM = Path(__file__).with_name("hostile.py")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hostile_templates", _PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hostile = _load()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What came of each hostile template, rendered in a process of its own."""
    folder = tmp_path_factory.mktemp("hostile")
    done = subprocess.run(
        [sys.executable, str(_PROGRAM), str(folder)], capture_output=True, text=True, timeout=110, check=False
    )
    found = {outcome["name"]: outcome for outcome in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, f"it died after {list(found)[-1:]}: {done.stderr[-2000:]}"
    return found


@pytest.mark.parametrize("name", [*hostile.ENDLESS, *hostile.HUGE])
def test_a_template_without_end_or_measure_is_a_permanent_error_within_bounds(
    outcomes: dict[str, dict[str, Any]], name: str
) -> None:
    outcome = outcomes[name]
    assert outcome["code"] in {"template_limit", "template_error", "template_forbidden"}, outcome
    assert outcome["class"] == ErrorClass.PERMANENT
    assert outcome["cpu_seconds"] < 3, outcome
    assert outcome["peak_bytes"] < 500_000_000, outcome


@pytest.mark.parametrize("name", hostile.COSTLY)
def test_what_costs_much_for_its_size_is_still_within_bounds(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    outcome = outcomes[name]
    assert outcome["code"] in {"rendered", "template_limit", "template_error"}, outcome
    assert outcome["cpu_seconds"] < 3, outcome
    assert outcome["peak_bytes"] < 500_000_000, outcome


@pytest.mark.parametrize("name", hostile.FORBIDDEN)
def test_what_is_not_data_is_out_of_reach(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    outcome = outcomes[name]
    assert outcome["code"] in {"template_forbidden", "template_error", "parameter_missing"}, outcome
    assert outcome["class"] == ErrorClass.PERMANENT


def test_a_large_but_honest_mail_is_rendered(write: Write) -> None:
    templates = write(
        {
            "T/subject.txt": "{{ rows|length }} rows",
            "T/body.html": "<table>{% for row in rows %}<tr class=\"{{ loop.cycle('a', 'b') }}\">"
            "{% for cell in row.cells %}<td>{{ cell|upper }}</td>{% endfor %}"
            "<td>{{ '%.2f'|format(row.price) }}</td></tr>{% endfor %}</table>"
            "{{ rows|sum(attribute='price')|round(2) }}",
        }
    )
    rows = [{"cells": [f"cell {r} {c}" for c in range(6)], "price": r * 1.5} for r in range(2000)]
    content = templates.render("T", {"rows": rows})
    assert content.subject == "2000 rows"
    assert content.html is not None
    assert content.html.count("<td>") == 14_000
    assert content.html.endswith("</table>2998500.0")


def test_each_render_has_a_budget_of_its_own(write: Write, folder: Path) -> None:
    write({"T/subject.txt": "s", "T/body.txt": "{% for i in range(100) %}{{ i }}{% endfor %}"})
    templates = Templates([folder], limits=Limits(work=5000))
    for _ in range(100):
        assert templates.render("T", {}).text is not None


def test_time_that_the_thread_was_not_running_does_not_count(write: Write, folder: Path) -> None:
    write({"T/subject.txt": "s", "T/body.txt": "{% for i in range(1000) %}{{ nap() if i == 500 }}{% endfor %}"})
    templates = Templates([folder], limits=Limits(cpu_seconds=0.15))

    def nap() -> str:
        time.sleep(0.4)
        return ""

    # A function can't come from JSON; it stands for a process that was stopped in the middle.
    templates._environment._functions = (*templates._environment._functions, nap)
    assert templates.render("T", {"nap": nap}).text == ""


def test_huge_parameters_end_as_a_permanent_error(write: Write) -> None:
    templates = write(
        {"T/subject.txt": "s", "T/body.txt": "{{ value }}", "U/subject.txt": "{{ value }}", "U/body.txt": "x"}
    )
    for name in ("T", "U"):
        for value in ("x" * 2_000_000, [["x" * 1000] * 1000] * 100):
            with pytest.raises(TemplateError) as caught:
                templates.render(name, {"value": value})
            assert caught.value.code == "template_limit"
