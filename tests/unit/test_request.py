"""Bad requests are refused before anything is written, with an error that names the field and says what to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_mail.errors import InvalidRequestError
from outbox_mail.mail.request import MAX_PARAMETERS_DEPTH, checked_row, rows_json

GOOD: dict[str, Any] = {"to": "a@example.com", "template": "T"}
NOW = datetime.now(UTC)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


circular: dict[str, Any] = {}
circular["again"] = circular


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"to": ()}, "to"),
        ({"to": []}, "to"),
        ({"to": ""}, "to"),
        ({"to": None}, "to"),
        ({"to": 5}, "to"),
        ({"to": b"a@example.com"}, "to"),
        ({"to": {"a@example.com": 1}}, "to"),
        ({"to": ["a@example.com", "not an address"]}, "to[1]"),
        ({"to": ["a@example.com", 7]}, "to[1]"),
        ({"to": "a@example.com, b@example.com"}, "to"),
        ({"to": "a@example.com\r\nBcc: x@example.com"}, "to"),
        ({"to": "A\nB <a@example.com>"}, "to"),
        ({"cc": "a@"}, "cc"),
        ({"bcc": ["@example.com"]}, "bcc[0]"),
        ({"to": ["a@example.com"] * 501}, "to"),
        ({"template": ""}, "template"),
        ({"template": None}, "template"),
        ({"template": "../secrets"}, "template"),
        ({"template": "a/../../b"}, "template"),
        ({"template": "/etc/passwd"}, "template"),
        ({"template": "T\n"}, "template"),
        ({"template": "T" * 201}, "template"),
        ({"parameters": [1]}, "parameters"),
        ({"parameters": "x"}, "parameters"),
        ({"parameters": {"at": NOW}}, "parameters.at"),
        ({"parameters": {"order": {"total": Decimal(1)}}}, "parameters.order.total"),
        ({"parameters": {"lines": [1, {2}]}}, "parameters.lines[1]"),
        ({"parameters": {1: "x"}}, "parameters[1]"),
        ({"parameters": {"a": {None: "x"}}}, "parameters.a[None]"),
        ({"parameters": {"a": float("nan")}}, "parameters.a"),
        ({"parameters": {"a": float("-inf")}}, "parameters.a"),
        ({"parameters": {"a": "nul \0"}}, "parameters.a"),
        ({"parameters": {"nul \0": 1}}, r"parameters['nul \x00']"),
        ({"parameters": {"a": b"bytes"}}, "parameters.a"),
        ({"parameters": {"a": 10**5000}}, "parameters.a"),
        ({"parameters": {"a": nested(MAX_PARAMETERS_DEPTH + 1)}}, "parameters.a" + "[0]" * MAX_PARAMETERS_DEPTH),
        ({"send_at": datetime(2030, 1, 1)}, "send_at"),  # noqa: DTZ001 - naive on purpose
        ({"send_at": "2030-01-01"}, "send_at"),
        ({"expires_at": datetime(2030, 1, 1)}, "expires_at"),  # noqa: DTZ001 - naive on purpose
        ({"expires_at": NOW - timedelta(seconds=1)}, "expires_at"),
        ({"send_at": NOW + timedelta(hours=2), "expires_at": NOW + timedelta(hours=1)}, "expires_at"),
        ({"priority": 9}, "priority"),
        ({"priority": "HIGH"}, "priority"),
        ({"priority": True}, "priority"),
        ({"locale": "tr TR"}, "locale"),
        ({"locale": "../tr"}, "locale"),
        ({"sender": "no address"}, "sender"),
        ({"reply_to": ["x"]}, "reply_to[0]"),
        ({"tags": "single"}, "tags"),
        ({"tags": ["a\nb"]}, "tags[0]"),
        ({"tags": ["t"] * 21}, "tags"),
        ({"entity": "order"}, "entity"),
        ({"entity": ("order", 1.5)}, "entity[1]"),
        ({"entity": ("", 1)}, "entity[0]"),
        ({"ordering_key": "k" * 256}, "ordering_key"),
        ({"ordering_key": 5}, "ordering_key"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "a\0"}, "idempotency_key"),
        ({"schema_version": 0}, "schema_version"),
        ({"schema_version": True}, "schema_version"),
        ({"attachments": ["file.csv"]}, "attachments[0]"),
        ({"attachments": "file.csv"}, "attachments"),
        ({"colour": "red"}, "colour"),
        ({"send_at": datetime.max.replace(tzinfo=UTC)}, "send_at"),
        ({"send_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))}, "send_at"),
        ({"expires_at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=14)))}, "expires_at"),
        ({"priority": "x" * 100_000}, "priority"),
        ({"priority": _nested(5000)}, "priority"),
        ({"schema_version": _nested(5000)}, "schema_version"),
    ],
)
def test_a_bad_request_names_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        checked_row(GOOD | change)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")
    assert caught.value.advice
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "b\r\nBcc: x@example.com"},
        {"X-A\r\nBcc": "x"},
        {"Bcc": "x@example.com"},
        {"Subject": "x"},
        {"X A": "x"},
        {"X-A": 5},
        {5: "x"},
        {"X-A": "line\u2028separator"},
    ],
)
def test_a_bad_header_is_named(headers: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        checked_row(GOOD | {"headers": headers})
    assert caught.value.field.startswith("headers")


def test_parameters_that_contain_themselves_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="nested deeper"):
        checked_row(GOOD | {"parameters": circular})


@pytest.mark.parametrize("missing", ["to", "template"])
def test_what_every_message_needs_is_asked_for(missing: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        checked_row({name: value for name, value in GOOD.items() if name != missing})
    assert caught.value.field == missing


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="surrogate"):
        rows_json([checked_row(GOOD | {"parameters": {"a": "\ud800"}})])


def test_a_row_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="bytes"):
        rows_json([checked_row(GOOD | {"parameters": {"a": "x" * 1_000_001}})])


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abç", max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text("abğ", min_size=1, max_size=3), json_values, max_size=4))
def test_any_json_object_is_taken_as_it_is(parameters: dict[str, Any]) -> None:
    (row,) = json.loads(rows_json([checked_row(GOOD | {"parameters": parameters})]))
    assert row["parameters"] == parameters
