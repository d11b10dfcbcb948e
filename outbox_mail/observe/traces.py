"""Goes on with the producer's trace by OpenTelemetry's API alone: without an SDK it costs next to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outbox_mail.errors import DeliveryError

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_MAX_CARRIER_CHARS: Final = 1024


@contextmanager
def delivery_span(
    trace_context: Mapping[str, Any] | None, *, message_id: UUID, template: str, attempt: int
) -> Iterator[Span]:
    """A span ``outbox_mail.deliver`` around one delivery, child of the span in which the message was enqueued.

    ``trace_context`` is the row's, not trusted: what is no W3C trace context begins a new trace. Attributes are ids
    only. An error is recorded by its code, and passes through.
    """
    tracer = trace.get_tracer("outbox_mail")
    context = _PROPAGATOR.extract(_carrier(trace_context))
    with tracer.start_as_current_span(
        "outbox_mail.deliver",
        context=context,
        kind=SpanKind.CONSUMER,
        attributes={
            "messaging.system": "outbox_mail",
            "messaging.message.id": str(message_id),
            "outbox_mail.template": template,
            "outbox_mail.attempt": attempt,
        },
        # An exception's text and traceback may hold parameters.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", error.code if isinstance(error, DeliveryError) else type(error).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise


def _carrier(trace_context: Mapping[str, Any] | None) -> dict[str, str]:
    if not isinstance(trace_context, Mapping):
        return {}
    return {
        name: value
        for name in ("traceparent", "tracestate")
        if isinstance(value := trace_context.get(name), str) and len(value) <= _MAX_CARRIER_CHARS
    }
