"""The alert rules can be loaded, and name only what is measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from outbox_mail.observe.catalogue import METRICS, Kind
from outbox_mail.observe.table import GAUGES

ROOT = Path(__file__).parents[2]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "docs/operations/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
LABELS = {
    **{gauge.name: set(gauge.labels) for gauge in GAUGES},
    **{metric.name: set(metric.labels) for metric in METRICS if metric.kind is Kind.COUNTER},
    **{
        f"{metric.name}{suffix}": set(metric.labels) | ({"le"} if suffix == "_bucket" else set())
        for metric in METRICS
        if metric.kind is Kind.HISTOGRAM
        for suffix in ("_bucket", "_sum", "_count")
    },
}
TARGET_LABELS = {"job", "instance"}


def selectors(node: Any) -> Iterator[Any]:
    """The vector selectors of an expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
        return
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs"):
        if (child := getattr(node, name, None)) is not None:
            yield from selectors(child)
    for child in getattr(node, "args", None) or ():
        yield from selectors(child)


@pytest.fixture(params=RULES, ids=lambda rule: rule["alert"])
def rule(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each of the rules."""
    found: dict[str, Any] = request.param
    return found


def test_each_expression_is_one_that_prometheus_reads(rule: dict[str, Any]) -> None:
    promql_parser.parse(rule["expr"])
    if "for" in rule:
        promql_parser.parse_duration(rule["for"])


def test_each_metric_and_label_that_it_names_is_measured(rule: dict[str, Any]) -> None:
    found = list(selectors(promql_parser.parse(rule["expr"])))

    assert len(found) == len(re.findall(r"outbox_mail_\w+", rule["expr"]))
    known: set[str] = set()
    for selector in found:
        assert selector.name in LABELS
        assert {matcher.name for matcher in selector.matchers.matchers} <= LABELS[selector.name]
        known |= LABELS[selector.name]
    grouped = {name for names in re.findall(r"by \(([^)]*)\)", rule["expr"]) for name in re.split(r",\s*", names)}
    assert grouped <= known | TARGET_LABELS
    shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert shown <= grouped


def test_each_says_how_bad_it_is_what_happened_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["service"] == "outbox-mail"
    assert rule["labels"]["severity"] in {"none", "warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "action"}


def test_no_two_have_one_name() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_maintenance_mutes_all_the_others_and_itself_wakes_nobody() -> None:
    (inhibition,) = yaml.safe_load((ROOT / "docs/operations/alertmanager.yml").read_text())["inhibit_rules"]
    source = re.fullmatch(r'alertname = "(\w+)"', inhibition["source_matchers"][0])
    assert source is not None
    muting = next(rule for rule in RULES if rule["alert"] == source[1])
    targets = [re.fullmatch(r'(\w+) =~? "(.*)"', matcher) for matcher in inhibition["target_matchers"]]

    assert muting["labels"]["severity"] == "none"
    assert 'maintenance="true"' in muting["expr"]
    for rule in RULES:
        hit = all(target and re.fullmatch(target[2], rule["labels"][target[1]]) for target in targets)
        assert hit == (rule is not muting)


def test_the_number_that_matters_wakes_somebody() -> None:
    critical = [rule["expr"] for rule in RULES if rule["labels"]["severity"] == "critical"]
    assert any("outbox_mail_oldest_due_pending_age_seconds" in expression for expression in critical)
