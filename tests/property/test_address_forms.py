"""What a mailbox looks like elsewhere: other parsers read the same from its header, and each of its parts is stable."""

from __future__ import annotations

import re
import unicodedata
from email.header import decode_header, make_header
from email.policy import default
from email.utils import getaddresses

from hypothesis import example, given, settings
from hypothesis import strategies as st

from outbox_mail.mail.addresses import MailboxError, mailbox_of, parse_mailbox

_WRITTEN = st.characters(exclude_categories=["Cs", "Cc"])
_NAMES = st.lists(
    st.text(_WRITTEN, max_size=20)
    | st.sampled_from(
        ["<a@x.test>", '"', "\\", ",", ";", "=?", "=?utf-8?q?a?=", "  ", "@", "(", "👨‍👩‍👧", "ş", "x" * 70]
    ),
    max_size=10,
).map("".join)
_ADDRESSES = st.sampled_from(["a@example.com", '"a b"@example.com', '"<\\">"@x.test', "A.b+c@örnek.example"])


@settings(max_examples=500, deadline=None)
@given(_NAMES, _ADDRESSES)
@example("ş" * 320, "a@example.com")
@example("👨‍👩‍👧" * 60, '"a b"@example.com')
@example("a" * 320, "a@example.com")
@example('"\\' * 30, '"<\\">"@x.test')
def test_the_standard_library_reads_from_a_header_what_was_meant(name: str, address: str) -> None:
    try:
        mailbox = mailbox_of(name, address)
    except MailboxError:
        return
    header = mailbox.header()
    ((phrase, found),) = getaddresses([header])
    assert (str(make_header(decode_header(phrase))), found) == (mailbox.display_name, mailbox.envelope)
    assert [parsed.addr_spec for parsed in default.header_factory("To", header).addresses] == [mailbox.envelope]
    for word in re.findall(r"=\?utf-8\?[qb]\?[^?]*\?=", header):
        assert len(word) <= 75
        ((data, charset),) = decode_header(word)
        assert data.decode(charset)


@settings(max_examples=500, deadline=None)
@given(
    st.text(_WRITTEN | st.sampled_from('\u037e\u1fef\u212a\u2126\u0338\u0301<>=;,"\\ .@'), min_size=1, max_size=12),
    st.booleans(),
)
@example("a\u037eb", True)
def test_a_local_part_of_any_characters_is_read_back_as_it_is_stored(characters: str, quoted: bool) -> None:
    escaped = re.sub(r'(["\\])', r"\\\1", characters)
    try:
        mailbox = parse_mailbox(f'"{escaped}"@x.test' if quoted else f"{characters}@x.test")
    except MailboxError:
        return
    assert parse_mailbox(str(mailbox)) == mailbox
    assert mailbox.local_part.startswith('"') or not set(mailbox.local_part) & set('()<>[]:;@\\," ')
    assert unicodedata.is_normalized("NFC", mailbox.local_part)


@settings(max_examples=500, deadline=None)
@given(st.text(_WRITTEN | st.sampled_from("abc-.\u3002\u00df\u0130\u200d\u0661"), max_size=12))
def test_a_domain_of_any_characters_has_one_ascii_form(domain: str) -> None:
    try:
        mailbox = parse_mailbox(f"a@{domain}.example")
    except MailboxError:
        return
    assert mailbox.ascii_domain.isascii()
    assert parse_mailbox(mailbox.envelope) == mailbox
