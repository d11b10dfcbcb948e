"""The quick way for ordinary addresses never takes what the validator refuses, and stored text means what was meant."""

from __future__ import annotations

import string

import email_validator
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outbox_mail.mail import addresses
from outbox_mail.mail.addresses import MailboxError, mailbox_of, parse_mailbox
from outbox_mail.mail.providers.smtp.envelope import is_sendable

_ATOM = st.text(string.ascii_letters + string.digits + "!#$%&'*+/=?^_`{|}~-.", min_size=1, max_size=66)
_HOST = st.text(string.ascii_letters + string.digits + "-.", min_size=1, max_size=70)
_NOTABLE = st.sampled_from(
    ["", ".", "..", "-", "--", "xn--", "_", "@", "é", "a" * 63, "1", ".1", "\u0663", "\u017f", "\u212a"]
)
_PIECES = st.lists(_ATOM | _HOST | _NOTABLE, min_size=1, max_size=5).map("".join)
# With what a hostile producer would write, and without what no mailbox may hold.
_NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(["<a@x.test>", '"', "\\", ",", ";", ":", "=?utf-8?q?a?=", "  ", "@", "(", ")", "👨‍👩‍👧", "ش"]),
    max_size=8,
).map("".join)
_ADDRESSES = st.sampled_from(
    ["a@example.com", '"a b"@example.com', '"<\\">"@x.test', "ş@örnek.example", "用户@例子.test", "root@localhost"]
)


@settings(max_examples=1000, deadline=None)
@given(_PIECES, _PIECES)
@example("a", "xn--a.com")
@example("a", "b--c.com")
@example("a", "b." * 126 + "c")
@example("a" * 64, "b" * 63 + "." + "c" * 63 + "." + "d" * 61 + ".e")
@example("a" * 64, "b" * 63 + "." + "c" * 63 + "." + "d" * 62 + ".e")
@example("a\n", "b.com")
@example("a", "b.com\n")
@example("a", "1")
def test_the_quick_way_takes_only_what_the_validator_takes_and_gives_the_same(local_part: str, domain: str) -> None:
    quick = addresses._plain(f"{local_part}@{domain}")
    if quick is None:
        return
    # The names of other people's networks, which the validator refuses on purpose and this library takes.
    if any(f".{quick.domain}".endswith(f".{name}") for name in email_validator.SPECIAL_USE_DOMAIN_NAMES):
        return
    valid = email_validator.validate_email(
        f"{local_part}@{domain}", check_deliverability=False, globally_deliverable=False, strict=True
    )
    assert valid.local_part.lower() == quick.local_part.lower()
    assert (valid.domain, valid.ascii_domain, valid.display_name) == (quick.domain, quick.domain, None)
    assert not valid.smtputf8


@settings(max_examples=500, deadline=None)
@given(_NAMES, _ADDRESSES)
def test_a_name_survives_the_row(name: str, address: str) -> None:
    try:
        mailbox = mailbox_of(name, address)
    except MailboxError:
        return
    assert parse_mailbox(str(mailbox)) == mailbox
    assert "".join(mailbox.header().split()).isprintable()
    assert mailbox.header().isascii() is not mailbox.needs_smtputf8


@settings(max_examples=1000, deadline=None)
@given(
    st.lists(_NAMES | _ADDRESSES | st.sampled_from(["<", ">", '"', " ", "\t", "@", ",", "."]), max_size=6).map("".join)
)
def test_any_text_is_either_one_mailbox_or_refused(text: str) -> None:
    try:
        mailbox = parse_mailbox(text)
    except MailboxError:
        return
    assert parse_mailbox(str(mailbox)) == mailbox
    assert is_sendable(mailbox.envelope)
    assert mailbox.envelope.count("@") == 1 or mailbox.local_part.startswith('"')
    assert mailbox.ascii_domain.isascii()
    assert len(mailbox.envelope.encode()) <= 254
