"""What producers pass, and what rows hold: every field is checked on both sides by the same rules."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from outbox_mail.errors import AttachmentError, ErrorClass, InvalidRequestError
from outbox_mail.mail.attachments.reference import Attachment
from outbox_mail.mail.attachments.rows import MAX_ATTACHMENTS, refs_from_json
from outbox_mail.mail.attachments.storage_ref import StorageRef
from outbox_mail.mail.message import AttachmentRef

PLAIN: dict[str, Any] = {"filename": "a.pdf", "content_type": "application/pdf", "storage_ref": "file:///files/a.pdf"}

CROOKED_REFS = [
    "",
    "a.pdf",
    "/etc/passwd",
    "file:/etc/passwd",
    "file://etc/passwd",
    "file:///",
    "file:///files/../etc/passwd",
    "file:///files/./a",
    "file:///files//a",
    "file:///files/a/",
    "file:///files/%2e%2e/etc/passwd",
    "file:///files/%252e%252e/etc/passwd",
    "file:///files/..\\..\\etc",
    "file:///files/a\0.pdf",
    "file:///files/a\n.pdf",
    "file:///files/a?x=1",
    "file:///files/a#x",
    "file:///files/*",
    "file:///files/[a]",
    "file:///files/{a,b}",
    "FILE:///files/a",
    "file ://files/a",
    "://a",
    "simplecache::file:///files/a",
    "file:///files/a::simplecache",
    "zip://a.txt::file:///files/a.zip",
    "filecache::s3://bucket/a",
    "s3://bucket/a://b",
    "s3://key:secret@bucket/a",
    "s3://bucket/../other/a",
    "s3://",
    "s3:///a",
    "memory://a/\u202efdp.exe",
    "file:///files/" + "x" * 1100,
    "file:///files/\ud800",
]


@pytest.mark.parametrize("text", CROOKED_REFS)
def test_a_crooked_storage_ref_is_refused_on_both_sides(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^storage_ref: "):
        Attachment.ref(filename="a.pdf", storage_ref=text)
    with pytest.raises(AttachmentError, match=r"attachments\[0\]\.storage_ref"):
        refs_from_json([{**PLAIN, "storage_ref": text}])


@pytest.mark.parametrize(
    "text",
    [
        "file:///files/a.pdf",
        "file:///var/lib/app/Übersicht 2026 (1).pdf",
        "s3://bucket/prefix/a=b,c;d.pdf",
        "memory://files/a",
        "gs://bucket/..a/b..",
        "file:///home/~user/a",
    ],
)
def test_a_plain_storage_ref_stays_as_it_is(text: str) -> None:
    assert str(StorageRef.parse(text)) == text
    assert Attachment.ref(filename="a.pdf", storage_ref=text).storage_ref == text


@pytest.mark.parametrize(
    ("ref", "folder", "below"),
    [
        ("file:///a/b/c", "file:///a", ("b", "c")),
        ("file:///a/b", "file:///a/b", None),
        ("file:///ab/c", "file:///a", None),
        ("file:///a", "file:///a/b", None),
        ("s3://a/b", "file:///a", None),
        ("s3://a/b", "memory://a", None),
    ],
)
def test_below_means_within_the_folder_and_not_beside_it(ref: str, folder: str, below: tuple[str, ...] | None) -> None:
    assert StorageRef.parse(ref).below(StorageRef.parse(folder)) == below


BAD_FIELDS: list[tuple[str, Any]] = [
    ("filename", ""),
    ("filename", "  "),
    ("filename", "."),
    ("filename", ".."),
    ("filename", "a/b"),
    ("filename", "..\\b"),
    ("filename", "a\r\nBcc: x@y.z"),
    ("filename", "a\0"),
    ("filename", "invoice\u202efdp.exe"),
    ("filename", "a\u2028b"),
    ("filename", "\ud800"),
    ("filename", "x" * 201),
    ("filename", 7),
    ("filename", ["a"]),
    ("content_type", ""),
    ("content_type", "pdf"),
    ("content_type", "application/pdf\r\nX: y"),
    ("content_type", 'application/pdf; name="a"'),
    ("content_type", "text/plain; charset"),
    ("content_type", "text /plain"),
    ("content_type", "multipart/mixed"),
    ("content_type", "message/rfc822"),
    ("content_type", "a/b/c"),
    ("content_type", "é/x"),
    ("content_type", 7),
    ("content_id", ""),
    ("content_id", "<logo>"),
    ("content_id", "logo\r\n"),
    ("content_id", "a b"),
    ("content_id", "é"),
    ("content_id", "x" * 300),
    ("content_id", 7),
    ("owned", "yes"),
    ("owned", 1),
    ("storage_ref", None),
    ("storage_ref", 7),
]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS)
def test_a_bad_field_is_refused_and_named_on_both_sides(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        Attachment(**{**PLAIN, field: value})
    assert refused.value.field == field
    with pytest.raises(AttachmentError) as invalid:
        refs_from_json([PLAIN, {**PLAIN, field: value}])
    assert (invalid.value.code, invalid.value.error_class) == ("attachment_invalid", ErrorClass.PERMANENT)
    assert f"attachments[1].{field}:" in str(invalid.value)


@pytest.mark.parametrize("value", ["x", 7, {}, {"filename": "a"}, True, [7], ["x"], [[]], [None], [PLAIN] * 51])
def test_attachments_of_another_shape_are_refused(value: Any) -> None:
    with pytest.raises(AttachmentError, match="attachments") as caught:
        refs_from_json(value)
    assert caught.value.code == "attachment_invalid"


@pytest.mark.parametrize("field", ["filename", "storage_ref"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(AttachmentError, match=rf"attachments\[0\]\.{field}: it is missing"):
        refs_from_json([{key: value for key, value in PLAIN.items() if key != field}])


def test_a_row_holds_what_the_producer_passed_and_no_more_than_needed() -> None:
    plain = Attachment.ref(**PLAIN)
    assert plain.as_json() == PLAIN
    full = Attachment.ref(**PLAIN, owned=True, content_id="logo@shop")
    assert full.as_json() == {**PLAIN, "owned": True, "content_id": "logo@shop"}
    assert refs_from_json([plain.as_json(), full.as_json()]) == (
        AttachmentRef("a.pdf", "application/pdf", "file:///files/a.pdf"),
        AttachmentRef("a.pdf", "application/pdf", "file:///files/a.pdf", True, "logo@shop"),
    )


def test_no_attachments_and_unknown_keys_are_fine() -> None:
    assert refs_from_json(None) == refs_from_json([]) == ()
    assert refs_from_json([{**PLAIN, "added_later": 1, "content_id": None}])[0].filename == "a.pdf"
    assert len(refs_from_json([PLAIN] * MAX_ATTACHMENTS)) == MAX_ATTACHMENTS


@pytest.mark.parametrize(
    ("filename", "content_type"),
    [
        ("report.csv", "text/csv"),
        ("a.PDF", "application/pdf"),
        ("mail.eml", "application/octet-stream"),
        ("data.tar.gz", "application/octet-stream"),
        ("unknown", "application/octet-stream"),
    ],
)
def test_the_file_name_tells_the_content_type_when_nobody_else_does(filename: str, content_type: str) -> None:
    assert Attachment.ref(filename=filename, storage_ref="file:///a/b").content_type == content_type
    assert refs_from_json([{"filename": filename, "storage_ref": "file:///a/b"}])[0].content_type == content_type


def test_producers_load_neither_fsspec_nor_jinja() -> None:
    code = (
        "import sys, outbox_mail.mail.attachments.reference as r;"
        "r.Attachment.ref(filename='a.txt', storage_ref='s3://b/a');"
        "print([m for m in ('fsspec', 'jinja2', 'psycopg', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
