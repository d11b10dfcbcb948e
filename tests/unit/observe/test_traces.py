"""The producer's trace goes on in the worker."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from opentelemetry import trace

from outbox_mail.errors import TemplateError
from outbox_mail.observe.traces import delivery_span

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_span_belongs_to_the_trace_of_the_row() -> None:
    with delivery_span({"traceparent": PARENT}, message_id=uuid4(), template="T", attempt=1):
        assert f"{trace.get_current_span().get_span_context().trace_id:032x}" == PARENT.split("-")[1]
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        {},
        [],
        "x",
        {"traceparent": 3},
        {"traceparent": "00-zz"},
        {"traceparent": "x" * 10**6},
        {"tracestate": "\x00"},
    ],
)
def test_what_is_no_trace_context_begins_a_new_trace(hostile: Any) -> None:
    with delivery_span(hostile, message_id=uuid4(), template="T", attempt=1):
        assert not trace.get_current_span().get_span_context().is_valid


def test_an_error_passes_through() -> None:
    with pytest.raises(TemplateError), delivery_span(None, message_id=uuid4(), template="T", attempt=1):
        raise TemplateError("template_error", "no")
