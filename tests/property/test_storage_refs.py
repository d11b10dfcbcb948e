"""Whatever a row says, nothing outside of an allowed store is named, and rows are either understood or refused."""

from __future__ import annotations

import os.path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outbox_mail.errors import AttachmentError
from outbox_mail.mail.attachments.rows import refs_from_json
from outbox_mail.mail.attachments.storage_ref import StorageRef
from outbox_mail.mail.message import AttachmentRef

FOLDER = StorageRef.parse("file:///srv/files")

_pieces = st.lists(
    st.sampled_from(
        ["file://", "/", "//", "..", ".", "srv", "files", "a", "%2e", "::", "\\", "\0", "é", "~", "s3://", "@", "?"]
    )
    | st.text(max_size=3),
    max_size=12,
).map("".join)
_refs = _pieces | st.text(max_size=30) | _pieces.map(lambda text: f"file:///srv/files/{text}")
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(_refs)
def test_a_reference_below_a_folder_stays_below_it_however_paths_are_read(text: str) -> None:
    try:
        ref = StorageRef.parse(text)
    except ValueError:
        return
    assert str(ref) == text
    parts = ref.below(FOLDER)
    if parts is not None:
        path = "/srv/files/" + "/".join(parts)
        assert os.path.normpath(path) == path


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "filename": _json | st.just("a.pdf"),
                "content_type": _json | st.just("text/plain"),
                "storage_ref": _refs | _json | st.just("file:///srv/files/a"),
                "owned": _json,
                "content_id": _json,
            },
        ),
        max_size=3,
    )
    | _json
)
def test_attachments_of_any_json_are_understood_or_refused(value: Any) -> None:
    refs: tuple[AttachmentRef, ...] = ()
    code = "attachment_invalid"
    try:
        refs = refs_from_json(value)
    except AttachmentError as error:
        code = error.code
    assert code == "attachment_invalid"
    for ref in refs:
        assert "/" not in ref.filename
        assert not set("\r\n\0") & set(ref.filename + ref.content_type + ref.storage_ref + (ref.content_id or ""))
