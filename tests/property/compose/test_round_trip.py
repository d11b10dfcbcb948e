"""What goes into the composer comes out of the standard library's parser, and every line is legal on the way."""

from __future__ import annotations

import email
import re
from base64 import b64decode
from datetime import UTC, datetime
from email.header import decode_header, make_header
from email.message import EmailMessage, Message
from email.policy import default
from email.utils import getaddresses, parsedate_to_datetime
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_mail.errors import InvalidRequestError
from outbox_mail.mail.addresses import canonical_mailbox, parse_mailbox
from outbox_mail.mail.compose import LoadedAttachment, RenderedContent, compose
from outbox_mail.mail.headers import checked_headers
from outbox_mail.testing.messages import claimed_message

_CHARACTERS = st.characters(exclude_categories=["Cs"])
_AWKWARD = st.sampled_from(
    [
        "=?utf-8?q?a?=",
        "=?",
        "?=",
        "\r\n",
        "\r",
        " ",
        "  ",
        "\t",
        ".",
        "From ",
        '"',
        "\\",
        "<",
        ">",
        ",",
        ";",
        ":",
        "(",
        "@",
        "👨‍👩‍👧",
        "🌷",
        "ş",
        "İ",
        "漢字",
        "שלום",
        "e\u0301",
        "\xa0",
        "\u2028",
        "\u200f",
        "word ",
        "--",
        "=",
        "%",
        "'",
        "x" * 80,
    ]
)
_TEXT = st.lists(_AWKWARD | st.text(_CHARACTERS, max_size=20), max_size=25).map("".join)
_LOCAL = st.sampled_from(["a", "A.b+c", "x" * 64, '"a b"', '"<\\">"', "o'brien"])
_DOMAIN = st.sampled_from(["example.com", "örnek.example", "localhost", "例子.test", "mail.x.local"])
_ADDRESS = st.builds("{}@{}".format, _LOCAL, _DOMAIN)
_FILE = st.builds(
    LoadedAttachment,
    filename=st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp", "Cf"], exclude_characters="/\\"),
        min_size=1,
        max_size=60,
    ).filter(lambda name: bool(name.strip(" .")) and bool(name.strip())),
    content_type=st.sampled_from(["application/pdf", "text/csv; charset=utf-8", "image/png", "x/y+z"]),
    data=st.binary(max_size=300),
)


def _accepted(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except InvalidRequestError:
        return False
    return True


_MAILBOX = (
    st.tuples(_TEXT, _ADDRESS)
    .filter(lambda pair: _accepted(canonical_mailbox, "to", pair))
    .map(lambda pair: canonical_mailbox("to", pair))
)
_HEADERS = st.dictionaries(
    st.sampled_from(["X-A", "X-Long-Name-Of-A-Field", "Organization", "x" * 76]),
    _TEXT.filter(lambda value: _accepted(checked_headers, "headers", {"X-A": value})),
    max_size=3,
)


def _parsed(data: bytes) -> EmailMessage:
    message = email.message_from_bytes(data, policy=default)
    assert isinstance(message, EmailMessage)
    assert [part.defects for part in message.walk() if part.defects] == []
    return message


def _require_legal(data: bytes) -> None:
    assert data.isascii()
    assert data.count(b"\n") == data.count(b"\r") == data.count(b"\r\n")
    head, _, _ = data.partition(b"\r\n\r\n")
    lines = data.split(b"\r\n")
    assert all(len(line) <= 998 for line in lines)
    assert all(line.strip() for line in head.split(b"\r\n"))
    assert all(len(word) <= 75 for word in re.findall(rb"=\?utf-8\?[qb]\?[^?]*\?=", head))


def _mailboxes(message: Message, name: str) -> list[tuple[str, str]]:
    """By the RFCs: the parser of ``policy=default`` puts spaces between the encoded words of one name."""
    unfolded = re.sub(r"\r?\n", "", message[name])
    return [(str(make_header(decode_header(name))), address) for name, address in getaddresses([unfolded])]


def _expected(mailboxes: list[str]) -> list[tuple[str, str]]:
    return [(mailbox.display_name, mailbox.envelope) for mailbox in map(parse_mailbox, mailboxes)]


def _body(text: str) -> str:
    """Line ends are one kind, control characters are spaces, and the text ends with a line end."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", " ", text)
    return text if text.endswith("\n") else f"{text}\n"


def _filename(part: EmailMessage) -> str:
    """As the field says; ``get_filename`` takes blanks from its ends."""
    filename = part["Content-Disposition"].params["filename"]
    assert isinstance(filename, str)
    return filename


def _subject(text: str) -> str:
    return re.sub(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+", " ", text).strip(" ")


@settings(deadline=None)
@given(
    to=st.lists(_MAILBOX, min_size=1, max_size=4),
    cc=st.lists(_MAILBOX, max_size=2),
    bcc=st.lists(_ADDRESS, max_size=2),
    reply_to=st.lists(_MAILBOX, max_size=2),
    sender=_MAILBOX,
    headers=_HEADERS,
    subject=_TEXT,
    date=st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds are naive
    id_=st.uuids(),
)
def test_a_head_comes_out_as_it_went_in(
    to: list[str],
    cc: list[str],
    bcc: list[str],
    reply_to: list[str],
    sender: str,
    headers: dict[str, str],
    subject: str,
    date: datetime,
    id_: UUID,
) -> None:
    row: dict[str, Any] = {"to": to, "cc": cc, "bcc": bcc, "reply_to": reply_to, "sender": sender, "id": id_}
    message = claimed_message(**row, headers=headers, created_at=date)
    composed = compose(
        message, RenderedContent(subject, "t", None), (), default_sender="s@x.test", message_id_domain="mail.x.test"
    )
    _require_legal(composed.data)
    parsed, raw = _parsed(composed.data), email.message_from_bytes(composed.data)
    for name, mailboxes in (("From", [sender]), ("To", to), ("Cc", cc), ("Reply-To", reply_to)):
        if mailboxes:
            assert _mailboxes(raw, name) == _expected(mailboxes)
            assert [address.addr_spec for address in parsed[name].addresses] == [
                address for _, address in _expected(mailboxes)
            ]
        else:
            assert raw[name] is None
    assert raw["Bcc"] is None
    assert parsed["Subject"] == _subject(subject)
    assert parsedate_to_datetime(raw["Date"]) == date.replace(microsecond=0)
    assert raw["Message-ID"] == composed.message_id == f"<{id_.hex}@mail.x.test>"
    for name, value in checked_headers("headers", headers).items():
        assert str(make_header(decode_header(re.sub(r"\r?\n", "", raw[name])))) == value
    assert composed.recipients == tuple(dict.fromkeys(address for _, address in _expected([*to, *cc, *bcc])))
    assert composed.envelope_sender == parse_mailbox(sender).envelope


@settings(deadline=None)
@given(
    text=st.none() | _TEXT,
    html=_TEXT,
    files=st.lists(_FILE, max_size=3),
    shown=st.booleans(),
    image=st.none() | st.binary(max_size=100),
)
def test_a_body_comes_out_as_it_went_in(
    text: str | None, html: str, files: list[LoadedAttachment], shown: bool, image: bytes | None
) -> None:
    attachments = list(files)
    if image is not None:
        html = f'{html}<img src="cid:picture">' if shown else html
        attachments.append(LoadedAttachment("picture.png", "image/png", image, "picture"))
    data = compose(
        claimed_message(),
        RenderedContent("S", text, html),
        attachments,
        default_sender="s@x.test",
        message_id_domain="mail.x.test",
    ).data
    _require_legal(data)
    message = _parsed(data)
    found = {part.get_content_subtype(): part for part in message.walk() if part.get_content_disposition() is None}
    for subtype, expected in (("plain", text), ("html", html)):
        if expected is not None:
            payload = found[subtype].get_payload(decode=True)
            assert isinstance(payload, bytes)
            # In canonical form, as RFC 2049 §4 says: base64 carries CRLF, which the parser leaves as it is.
            assert payload.decode().replace("\r\n", "\n") == _body(expected)
    arrived = [part for part in message.walk() if part.get_content_disposition() is not None]
    assert sorted((_filename(part), part.get_payload(decode=True)) for part in arrived) == sorted(
        (file.filename, file.data) for file in attachments
    )
    inline = [part for part in arrived if part.get_content_disposition() == "inline"]
    assert [part["Content-ID"] for part in inline] == (["<picture>"] if image is not None and shown else [])


@settings(deadline=None)
@given(_TEXT)
def test_encoded_words_never_split_a_character(text: str) -> None:
    data = compose(
        claimed_message(),
        RenderedContent(f"ş{text}", "t", None),
        (),
        default_sender="s@x.test",
        message_id_domain="mail.x.test",
    ).data
    head = data.partition(b"\r\n\r\n")[0].decode()
    for kind, encoded in re.findall(r"=\?utf-8\?([qb])\?([^?]*)\?=", head):
        if kind == "b":
            assert b64decode(encoded, validate=True).decode()
        else:
            octets = re.sub(r"=([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), encoded)
            assert octets.encode("latin-1").decode()
