"""From the arguments of enqueue to a row: everything is checked here, before anything is written."""

from __future__ import annotations

import json
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Required, TypedDict
from uuid import UUID

from uuid_utils import uuid7

from outbox_mail.errors import InvalidRequestError
from outbox_mail.mail.addresses import canonical_mailbox
from outbox_mail.mail.attachments.reference import Attachment
from outbox_mail.mail.headers import checked_headers
from outbox_mail.names import Priority

MAX_RECIPIENTS: Final = 500
MAX_PARAMETERS_BYTES: Final = 1_000_000
MAX_PARAMETERS_DEPTH: Final = 50
MAX_ATTACHMENTS: Final = 50
MAX_TAGS: Final = 20

_TEMPLATE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?:/[A-Za-z0-9][A-Za-z0-9_.-]*)*")
_LOCALE: Final = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_FIRST_MOMENT: Final = datetime(1, 1, 2, tzinfo=UTC)
_LAST_MOMENT: Final = datetime(9999, 12, 30, tzinfo=UTC)

Mailbox = str | tuple[str, str]
"""An address as text (``ayse@example.com``, ``Ayşe <ayse@example.com>``) or as (name, address)."""


class MessageRequest(TypedDict, total=False):
    """One message of ``enqueue_many``: the keyword arguments of ``enqueue``."""

    to: Required[Mailbox | Iterable[Mailbox]]
    template: Required[str]
    parameters: Mapping[str, Any] | None
    cc: Mailbox | Iterable[Mailbox]
    bcc: Mailbox | Iterable[Mailbox]
    attachments: Iterable[Attachment]
    idempotency_key: str | None
    priority: Priority
    send_at: datetime | None
    expires_at: datetime | None
    locale: str | None
    sender: Mailbox | None
    reply_to: Mailbox | Iterable[Mailbox]
    headers: Mapping[str, str] | None
    tags: Iterable[str]
    entity: tuple[str, str | int | UUID] | None
    ordering_key: str | None
    schema_version: int


_FIELDS: Final = frozenset(MessageRequest.__annotations__)


def checked_row(request: Mapping[str, Any]) -> dict[str, Any]:
    """The row for one request, ready for JSON; raises ``InvalidRequestError`` that names the field."""
    for name in request:
        if name not in _FIELDS:
            raise InvalidRequestError(
                str(name), "there is no such argument", f"Use one of {', '.join(sorted(_FIELDS))}"
            )
    for name in ("to", "template"):
        if name not in request:
            raise InvalidRequestError(name, "it is missing", "Every message needs it")
    row: dict[str, Any] = {
        "id": str(uuid7()),
        "template": _template(request["template"]),
        "parameters": {},
        "priority": Priority.NORMAL.value,
        "schema_version": 1,
    }
    _recipients(row, request["to"], request.get("cc", ()), request.get("bcc", ()))
    for name, check in _OPTIONAL.items():
        # What is None or empty was not asked for; what is of the wrong type is never empty to its check.
        if (value := request.get(name)) is not None and (checked := check(value)):
            row[name] = checked
    if (entity := request.get("entity")) is not None:
        row["entity_type"], row["entity_id"] = _entity(entity)
    _times(row, _moment("send_at", request.get("send_at")), _moment("expires_at", request.get("expires_at")))
    if trace_context := _current_trace():
        row["trace_context"] = trace_context
    return row


def _text(field: str, value: object, longest: int) -> str:
    if not isinstance(value, str):
        raise InvalidRequestError(field, f"{type(value).__name__} is not text", "Pass a str")
    if not value.strip():
        raise InvalidRequestError(field, "it is empty", "Pass a value or leave it out")
    if len(value) > longest:
        raise InvalidRequestError(field, f"it has {len(value)} characters", f"Use {longest} at most")
    if _CONTROL.search(value):
        raise InvalidRequestError(field, "it has a line break or control character", "Remove it")
    return value


def _template(value: object) -> str:
    name = _text("template", value, 200)
    if not _TEMPLATE.fullmatch(name) or ".." in name:
        raise InvalidRequestError(
            "template",
            f"{name!r} is not a template's name",
            "Use letters, digits, '_', '-', '.', with '/' between folders",
        )
    return name


def _locale(value: object) -> str:
    locale = _text("locale", value, 35)
    if not _LOCALE.fullmatch(locale):
        raise InvalidRequestError("locale", f"{locale!r} is not a language tag", "Write it as tr, tr-TR or pt_BR")
    return locale


def _as_list(field: str, value: Any) -> list[Any]:
    if isinstance(value, str) or (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(part, str) for part in value)
        and "@" not in value[0]
    ):
        return [value]
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidRequestError(
            field, f"{type(value).__name__} is not an address or a list", "Pass str or a list of str"
        )
    return list(value)


def _mailboxes(field: str, value: Any) -> list[str]:
    single = isinstance(value, str)
    return [
        canonical_mailbox(field if single else f"{field}[{index}]", mailbox)
        for index, mailbox in enumerate(_as_list(field, value))
    ]


def _recipients(row: dict[str, Any], to: Any, cc: Any, bcc: Any) -> None:
    row["to"] = _mailboxes("to", to)
    for name, value in (("cc", cc), ("bcc", bcc)):
        if mailboxes := _mailboxes(name, value):
            row[name] = mailboxes
    count = sum(len(row.get(name, ())) for name in ("to", "cc", "bcc"))
    if count == 0:
        raise InvalidRequestError("to", "there is no recipient", "Name at least one address in to, cc or bcc")
    if count > MAX_RECIPIENTS:
        raise InvalidRequestError(
            "to", f"there are {count} recipients", f"Use {MAX_RECIPIENTS} at most, or one message for each"
        )


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in list(Priority):
        raise InvalidRequestError(
            "priority", f"{reprlib.repr(value)} is none", "Use Priority.HIGH, Priority.NORMAL or Priority.BULK"
        )
    return int(value)


def _schema_version(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 32767:
        raise InvalidRequestError(
            "schema_version", f"{reprlib.repr(value)} is no version", "Use a whole number from 1 to 32767"
        )
    return value


def _times(row: dict[str, Any], send_at: datetime | None, expires_at: datetime | None) -> None:
    if expires_at is not None:
        if expires_at <= (send_at or datetime.now(UTC)):
            earlier = "send_at" if send_at else "now"
            raise InvalidRequestError("expires_at", f"it is not after {earlier}", "Such a message could never be sent")
        row["expires_at"] = expires_at.isoformat()
    if send_at is not None:
        row["send_at"] = send_at.isoformat()


def _moment(field: str, value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidRequestError(field, f"{type(value).__name__} is not a datetime", "Pass an aware datetime")
    if value.utcoffset() is None:
        raise InvalidRequestError(
            field, "it is naive: its time zone is unknown", "Pass an aware one: datetime.now(UTC)"
        )
    if not _FIRST_MOMENT <= value <= _LAST_MOMENT:
        raise InvalidRequestError(field, "it is out of bounds", "Pass one from 0001-01-02 to 9999-12-30, in UTC")
    return value


def _attachments(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, (Attachment, str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidRequestError("attachments", f"{type(value).__name__} is not a list", "Pass a list of Attachment")
    listed = list(value)
    if len(listed) > MAX_ATTACHMENTS:
        raise InvalidRequestError("attachments", f"there are {len(listed)}", f"Use {MAX_ATTACHMENTS} at most")
    for index, attachment in enumerate(listed):
        if not isinstance(attachment, Attachment):
            raise InvalidRequestError(
                f"attachments[{index}]",
                f"{type(attachment).__name__} is not an Attachment",
                "Make it by Attachment.ref(…)",
            )
    return [attachment.as_json() for attachment in listed]


def _tags(value: Any) -> list[str]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidRequestError("tags", f"{type(value).__name__} is not a list", "Pass a list of str")
    tags = [_text(f"tags[{index}]", tag, 100) for index, tag in enumerate(value)]
    if len(tags) > MAX_TAGS:
        raise InvalidRequestError("tags", f"there are {len(tags)}", f"Use {MAX_TAGS} at most")
    return tags


def _entity(value: object) -> tuple[str, str]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidRequestError("entity", "it is not a pair", "Pass (type, id), such as ('order', 42)")
    kind, id_ = value
    if isinstance(id_, bool) or not isinstance(id_, (str, int, UUID)):
        raise InvalidRequestError("entity[1]", f"{type(id_).__name__} is no id", "Pass str, int or UUID")
    return _text("entity[0]", kind, 100), _text("entity[1]", str(id_), 255)


def _parameters(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidRequestError("parameters", f"{type(value).__name__} is not a mapping", "Pass a dict with str keys")
    checked = {}
    for key, item in value.items():
        _parameter("parameters", key, item, 1)
        checked[key] = item
    return checked


def _parameter(path: str, key: object, value: object, depth: int) -> None:
    if not isinstance(key, str):
        raise InvalidRequestError(
            f"{path}[{reprlib.repr(key)}]", f"a key that is {type(key).__name__}", "JSON has text keys: use str"
        )
    _scalar(f"{path}[{reprlib.repr(key)}]", key)
    _value(f"{path}.{key}", value, depth)


def _value(path: str, value: object, depth: int) -> None:
    if type(value) is dict:
        if depth > MAX_PARAMETERS_DEPTH:
            raise InvalidRequestError(path, f"it is nested deeper than {MAX_PARAMETERS_DEPTH}", "Flatten it")
        for key, item in value.items():
            _parameter(path, key, item, depth + 1)
    elif type(value) is list or type(value) is tuple:
        if depth > MAX_PARAMETERS_DEPTH:
            raise InvalidRequestError(path, f"it is nested deeper than {MAX_PARAMETERS_DEPTH}", "Flatten it")
        for index, item in enumerate(value):
            _value(f"{path}[{index}]", item, depth + 1)
    else:
        _scalar(path, value)


def _scalar(path: str, value: object) -> None:
    kind = type(value)
    if kind is str or isinstance(value, str):
        if "\0" in value:  # type: ignore[operator]  # it is a str
            raise InvalidRequestError(path, "it has a NUL character", "PostgreSQL can't keep it: remove it")
        return
    if value is None or kind is bool:
        return
    if kind is int:
        if abs(value) >= 10**4000:  # type: ignore[arg-type]  # it is an int
            raise InvalidRequestError(path, "the number is too large", "Pass it as text")
        return
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN is the one that differs from itself
            raise InvalidRequestError(path, f"{value} is not JSON", "Pass a finite number or None")
        return
    raise InvalidRequestError(
        path, f"{kind.__name__} is not JSON", "Pass str, int, float, bool, None, or lists and dicts of them"
    )


_OPTIONAL: Final[dict[str, Callable[[Any], Any]]] = {
    "parameters": _parameters,
    "priority": _priority,
    "schema_version": _schema_version,
    "sender": lambda value: canonical_mailbox("sender", value),
    "reply_to": lambda value: _mailboxes("reply_to", value),
    "headers": lambda value: checked_headers("headers", value),
    "attachments": _attachments,
    "tags": _tags,
    "locale": _locale,
    "ordering_key": lambda value: _text("ordering_key", value, 255),
    "idempotency_key": lambda value: _text("idempotency_key", value, 255),
}


def rows_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows as the one JSON parameter of the INSERT, each with its place ``n``."""
    parts = []
    for n, row in enumerate(rows):
        try:
            part = json.dumps({"n": n, **row}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            size_bytes = len(part.encode())
        except UnicodeEncodeError:
            raise InvalidRequestError("parameters", "some text has a lone surrogate", "Pass valid Unicode") from None
        if size_bytes > MAX_PARAMETERS_BYTES:
            raise InvalidRequestError(
                "parameters",
                f"the message takes {size_bytes} bytes",
                f"Use {MAX_PARAMETERS_BYTES} at most: pass a reference, or an attachment",
            )
        parts.append(part)
    return f"[{','.join(parts)}]"


def _current_trace() -> dict[str, str] | None:
    """The producer's W3C trace context, if its process uses OpenTelemetry; this library never loads it."""
    propagate = sys.modules.get("opentelemetry.propagate")
    if propagate is None:
        return None
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name: value for name, value in carrier.items() if name in ("traceparent", "tracestate")} or None
