"""From a row's ``attachments`` to references. Rows are written by any language, by SQL alone: nothing is trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from outbox_mail.errors import AttachmentError
from outbox_mail.mail.attachments import fields
from outbox_mail.mail.attachments.storage_ref import StorageRef
from outbox_mail.mail.message import AttachmentRef

MAX_ATTACHMENTS: Final = 50


def refs_from_json(value: object) -> tuple[AttachmentRef, ...]:
    """The references in a row's ``attachments``, each field checked; what is not known is passed over.

    Without ``content_type`` the file's name tells it. Raises ``AttachmentError`` (permanent, ``attachment_invalid``)
    that names the place: ``attachments[2].filename``.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _invalid("attachments", f"a JSON {type(value).__name__} is not an array")
    if len(value) > MAX_ATTACHMENTS:
        raise _invalid("attachments", f"there are {len(value)}, {MAX_ATTACHMENTS} are allowed")
    return tuple(_ref(f"attachments[{index}]", item) for index, item in enumerate(value))


def _ref(place: str, item: object) -> AttachmentRef:
    if not isinstance(item, dict):
        raise _invalid(place, f"a JSON {type(item).__name__} is not an object")
    filename: str = _checked(place, item, "filename", fields.filename)
    if item.get("content_type") is None:
        content_type = fields.guessed_content_type(filename)
    else:
        content_type = _checked(place, item, "content_type", fields.content_type)
    owned = item.get("owned", False)
    if not isinstance(owned, bool):
        raise _invalid(f"{place}.owned", f"a JSON {type(owned).__name__} is not true or false")
    content_id = item.get("content_id")
    if content_id is not None:
        content_id = _checked(place, item, "content_id", fields.content_id)
    storage_ref = str(_checked(place, item, "storage_ref", StorageRef.parse))
    return AttachmentRef(filename, content_type, storage_ref, owned, content_id)


def _checked(place: str, item: dict[str, Any], field: str, check: Callable[[object], Any]) -> Any:
    if field not in item:
        raise _invalid(f"{place}.{field}", "it is missing")
    try:
        return check(item[field])
    except ValueError as problem:
        raise _invalid(f"{place}.{field}", str(problem)) from None


def _invalid(place: str, problem: str) -> AttachmentError:
    return AttachmentError("attachment_invalid", f"{place}: {problem}. Mend the row's attachments and requeue it")
