"""The body as it goes out."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_mail.errors import ProviderError
from outbox_mail.mail.providers.smtp.envelope import body_of


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"", b"\r\n.\r\n"),
        (b"a", b"a\r\n.\r\n"),
        (b"a\r\n", b"a\r\n.\r\n"),
        (b".", b"..\r\n.\r\n"),
        (b".\r\n", b"..\r\n.\r\n"),
        (b"a\r\n.\r\n..\r\nb.\r\n", b"a\r\n..\r\n...\r\nb.\r\n.\r\n"),
        (b"\r\n.\r\n.", b"\r\n..\r\n..\r\n.\r\n"),
    ],
)
def test_dots_are_doubled_and_the_end_is_marked(data: bytes, body: bytes) -> None:
    assert b"".join(body_of(data)) == body


@given(st.lists(st.text(alphabet=".ab", max_size=4), max_size=10), st.booleans())
def test_the_end_is_seen_at_the_end_only(lines: list[str], large: bool) -> None:
    data = "\r\n".join(["x" * 300_000, *lines] if large else lines).encode() + b"\r\n"
    body = b"".join(body_of(data))
    assert (b"\r\n" + body).index(b"\r\n.\r\n") == len(body) - 3
    unstuffed = "\r\n".join(line.removeprefix(".") for line in body[:-3].decode().split("\r\n")).encode()
    assert unstuffed == data


@pytest.mark.parametrize("data", [b"\n", b"\r", b"a\n\r\nb", b"a\r\r\n", b"\r\n.\n", b"\n.\r\n", b"a\r", b"\r\n\n\r"])
def test_lone_line_ends_are_refused(data: bytes) -> None:
    with pytest.raises(ProviderError, match="lone CR or LF"):
        body_of(data)


def test_a_large_mail_without_dots_to_double_is_not_copied() -> None:
    data = (b"x" * 76 + b"\r\n") * 100_000
    tracemalloc.start()
    body_of(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000
