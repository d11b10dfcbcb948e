"""Text parts: what goes in comes out, in the shortest encoding that nothing on the way can harm."""

from __future__ import annotations

import re
from base64 import b64decode
from quopri import decodestring
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outbox_mail.mail.compose.base64 import base64_size, write_base64
from outbox_mail.mail.compose.entity import Leaf
from outbox_mail.mail.compose.text import text_leaf

STEM: Final = b"=_0198f0a12b3c7d4e8f5061728394a5b6"


def encoding_of(leaf: Leaf) -> str:
    found = re.search(rb"Content-Transfer-Encoding: (\S+)\r\n$", leaf.head)
    assert found is not None
    return found[1].decode()


def decoded(leaf: Leaf) -> str:
    match encoding_of(leaf):
        case "quoted-printable":
            data = decodestring(leaf.body)
        case "base64":
            data = b64decode(leaf.body)
        case _:
            data = leaf.body
    assert data.count(b"\n") == data.count(b"\r\n") == data.count(b"\r")
    return data.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Hello\n", "7bit"),
        ("", "7bit"),
        (".\n..\n.x\n", "7bit"),
        ("trailing blank \nand tab\t\n", "7bit"),
        ("a" * 998, "7bit"),
        (("a" * 998 + "\n") * 3, "7bit"),
        ("a" * 999, "quoted-printable"),
        ("short\n" + "a" * 999 + "\nshort", "quoted-printable"),
        ("From the shop\n", "quoted-printable"),
        ("Hello\nFrom the shop\n", "quoted-printable"),
        ("Hello From the shop\n", "7bit"),
        (f"--{STEM.decode()}_1\n", "quoted-printable"),
        ("Merhaba Ayşe, your order number 42 left the warehouse today.\n", "quoted-printable"),
        ("Здравствуйте\n", "base64"),
        ("ご注文ありがとうございます。\n", "base64"),
        ("é" + "=" * 100, "base64"),
    ],
)
def test_the_encoding_fits_the_text(text: str, encoding: str) -> None:
    leaf = text_leaf("plain", text, STEM)
    assert encoding_of(leaf) == encoding
    assert decoded(leaf) == (text if text.endswith("\n") else f"{text}\n")
    assert leaf.body.isascii()
    assert STEM not in leaf.body
    assert leaf.body.endswith(b"\r\n")


@pytest.mark.parametrize(
    ("text", "arrives"),
    [
        ("a\r\nb\rc\nd", "a\nb\nc\nd\n"),
        ("a\r\r\nb\n\r", "a\n\nb\n\n"),
        ("nul\0 esc\x1b[2J del\x7f vt\vff\f", "nul  esc [2J del  vt ff \n"),
        ("tab\tstays", "tab\tstays\n"),
        ("c1 \x85 and separators \u2028\u2029 stay", "c1 \x85 and separators \u2028\u2029 stay\n"),
        ("lone \ud800 surrogate", "lone ? surrogate\n"),
        ("\ufeffbom", "\ufeffbom\n"),
    ],
)
def test_what_can_not_travel_is_mended(text: str, arrives: str) -> None:
    assert decoded(text_leaf("html", text, STEM)) == arrives


def test_the_head_says_what_the_part_is() -> None:
    assert text_leaf("html", "é", STEM).head == (
        b"Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n"
    )


# Long lines, blanks before line ends, "From " and dots: what binascii and mail servers are known to trip over.
_AWKWARD = st.lists(
    st.sampled_from(
        ["From ", " ", "\t", ".", "=", "é", "\n", "\r\n", "x" * 20, "x" * 69, "=20", "=\n", " \n", "\t\r\n", "🌷"]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    max_size=30,
).map("".join)


@settings(max_examples=1000, deadline=None)
@given(_AWKWARD)
@example("é" + "x" * 69 + " \n")
@example("é" + "x" * 68 + "\t\n")
@example("é\n" + "From " * 40)
@example("é\nFrom " + "x" * 70)
@example("é" + "x" * 70 + "From From x")
def test_any_text_comes_out_as_it_went_in(text: str) -> None:
    leaf = text_leaf("plain", text, STEM)
    expected = text.replace("\r\n", "\n").replace("\r", "\n")
    expected = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", " ", expected)
    assert decoded(leaf) == (expected if expected.endswith("\n") else f"{expected}\n")
    lines = leaf.body.split(b"\r\n")
    longest = 998 if encoding_of(leaf) == "7bit" else 76
    assert all(len(line) <= longest and b"\n" not in line and b"\r" not in line for line in lines)
    assert not any(line.startswith(b"From ") for line in lines)
    if encoding_of(leaf) == "quoted-printable":
        assert not any(line.endswith((b" ", b"\t")) for line in lines)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 40) | st.integers(995, 1002) | st.integers(1990, 2010), min_size=1, max_size=12))
def test_a_line_that_is_too_long_is_found_wherever_it_stands(lengths: list[int]) -> None:
    leaf = text_leaf("plain", "\n".join(["x" * length for length in lengths]), STEM)
    assert (encoding_of(leaf) == "7bit") == (max(lengths) <= 998)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400) | st.integers(57 * 1024 - 60, 57 * 1024 + 60) | st.integers(57 * 2048 - 2, 57 * 2048 + 2))
def test_base64_has_lines_of_76_and_the_size_that_was_foretold(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    written: list[bytes] = []
    write_base64(written.append, data[:size])
    encoded = b"".join(written)
    lines = encoded.split(b"\r\n")
    assert b64decode(encoded, validate=False) == data[:size]
    assert all(len(line) == 76 for line in lines[:-1])
    assert 0 < len(lines[-1]) <= 76 or size == 0
    assert 0 <= base64_size(size) - len(encoded) <= 2
