"""What counts as a mailbox, how it is stored, and how it stands on the wire."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from outbox_mail.errors import InvalidRequestError
from outbox_mail.mail.addresses import Mailbox, MailboxError, canonical_mailbox, mailbox_of, parse_mailbox


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ayse@example.com", Mailbox("", "ayse", "example.com")),
        ("  ayse@example.com\t", Mailbox("", "ayse", "example.com")),
        ("<ayse@example.com>", Mailbox("", "ayse", "example.com")),
        ("Ayse.Yilmaz+shop@EXAMPLE.com", Mailbox("", "Ayse.Yilmaz+shop", "example.com")),
        ("Info@example.com", Mailbox("", "Info", "example.com")),
        ("Info@örnek.example", Mailbox("", "Info", "örnek.example")),
        ("Ayşe Yılmaz <ayse@example.com>", Mailbox("Ayşe Yılmaz", "ayse", "example.com")),
        ("Ayşe   Yılmaz\t< ayse@example.com >", Mailbox("Ayşe Yılmaz", "ayse", "example.com")),
        ('"Yılmaz, Ayşe" <ayse@example.com>', Mailbox("Yılmaz, Ayşe", "ayse", "example.com")),
        ('"Yılmaz, Ayşe"<ayse@example.com>', Mailbox("Yılmaz, Ayşe", "ayse", "example.com")),
        ("Yılmaz, Ayşe <ayse@example.com>", Mailbox("Yılmaz, Ayşe", "ayse", "example.com")),
        ("Ayşe (Shop) <ayse@example.com>", Mailbox("Ayşe (Shop)", "ayse", "example.com")),
        (r'"She said \"hi\" \\o/" <a@example.com>', Mailbox(r'She said "hi" \o/', "a", "example.com")),
        ('Dwayne "The Rock" Johnson <d@example.com>', Mailbox('Dwayne "The Rock" Johnson', "d", "example.com")),
        ('"The Rock" Johnson <d@example.com>', Mailbox('"The Rock" Johnson', "d", "example.com")),
        ("a@example.com <a@example.com>", Mailbox("a@example.com", "a", "example.com")),
        ('"a@x.test, B <b@x.test>" <c@example.com>', Mailbox("a@x.test, B <b@x.test>", "c", "example.com")),
        ("👨‍👩‍👧 <family@example.com>", Mailbox("👨‍👩‍👧", "family", "example.com")),
        ("محمد <m@example.com>", Mailbox("محمد", "m", "example.com")),
        ("=?utf-8?q?Ay=C5=9Fe_Y=C4=B1lmaz?= <a@example.com>", Mailbox("Ayşe Yılmaz", "a", "example.com")),
        ("=?utf-8?b?QXnFn2U=?= =?utf-8?q?_Y=C4=B1lmaz?= <a@example.com>", Mailbox("Ayşe Yılmaz", "a", "example.com")),
        ('"john doe"@example.com', Mailbox("", '"john doe"', "example.com")),
        ('"john.doe"@example.com', Mailbox("", "john.doe", "example.com")),
        ('X <"a<b>@c"@example.com>', Mailbox("X", '"a<b>@c"', "example.com")),
        ('"X" <"a\\"b"@example.com>', Mailbox("X", '"a\\"b"', "example.com")),
        ("用户@例子.test", Mailbox("", "用户", "例子.test")),
        ("a@xn--rnek-4qa.example", Mailbox("", "a", "örnek.example")),
        ("a@faß.example", Mailbox("", "a", "faß.example")),
        ("root@localhost", Mailbox("", "root", "localhost")),
        ("root@mailhost", Mailbox("", "root", "mailhost")),
        ("a@host.local", Mailbox("", "a", "host.local")),
        ("用户@host.LOCAL", Mailbox("", "用户", "host.local")),
        ('"a b"@localhost', Mailbox("", '"a b"', "localhost")),
        ("a@örnek.onion", Mailbox("", "a", "örnek.onion")),
        ("a@deleted.invalid", Mailbox("", "a", "deleted.invalid")),
        ("a@x.test", Mailbox("", "a", "x.test")),
        (f"{'a' * 64}@example.com", Mailbox("", "a" * 64, "example.com")),
        (f"a@{'b' * 63}.com", Mailbox("", "a", f"{'b' * 63}.com")),
    ],
)
def test_a_mailbox_is_understood_and_its_stored_text_means_the_same(text: str, expected: Mailbox) -> None:
    assert parse_mailbox(text) == expected
    assert parse_mailbox(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        (" \t", "empty"),
        ("<>", "@-sign"),
        ("Ayşe", "@-sign"),
        ("@example.com", "something before"),
        ("a@", "something after"),
        ("a@example.com, b@example.com", "several"),
        ("a@example.com; b@example.com", "several"),
        ("A <a@example.com>, B <b@example.com>", "several"),
        ('"A" <a@example.com>, "B" <b@example.com>', "several"),
        ("a@example.com, B <b@example.com>", "several"),
        ("A <a@example.com> <b@example.com>", "several"),
        ("Friends: a@example.com, b@example.com;", "group"),
        ("undisclosed-recipients:;", "group"),
        ("a@example.com (Ayşe)", "comment"),
        ("a(comment)@example.com", "comment"),
        ("Ayşe <a@example.com", "angle bracket"),
        ("a@example.com>", "@-sign|invalid"),
        ("Ayşe <a@example.com> x", "angle bracket"),
        ("a@example.com\n", r"line break \(U\+000A\)"),
        ("a@example.com\r\nBcc: b@example.com", r"line break \(U\+000D\)"),
        ("Ayşe\u2028 <a@example.com>", r"line break \(U\+2028\)"),
        ("Ayşe\u2029 <a@example.com>", r"line break \(U\+2029\)"),
        ("Ayşe\x85 <a@example.com>", r"line break \(U\+0085\)"),
        ("Ayşe\x0b <a@example.com>", r"line break \(U\+000B\)"),
        ("Ayşe\x0c <a@example.com>", r"line break \(U\+000C\)"),
        ("Ayşe\x1e <a@example.com>", r"line break \(U\+001E\)"),
        ("Ayşe\0 <a@example.com>", r"control character \(U\+0000\)"),
        ("Ayşe\x1b[2J <a@example.com>", r"control character \(U\+001B\)"),
        ("a\0@example.com", r"control character \(U\+0000\)"),
        ("\u202eesyA <a@example.com>", r"direction of text \(U\+202E\)"),
        ("A\u2066 <a@example.com>", r"direction of text \(U\+2066\)"),
        ("\ud800 <a@example.com>", r"lone surrogate \(U\+D800\)"),
        ("=?utf-8?q?a=0D=0ABcc:_b@x.test?= <a@example.com>", "line break"),
        ("=?utf-8?q?a=E2=80=AEb?= <a@example.com>", "direction"),
        ("=?utf-8?q?=3D=3Futf-8=3Fq=3Fa=3F=3D?= <a@example.com>", "encoded twice"),
        ("=?nonsense?q?a?= <a@example.com>", "broken encoded word"),
        ("=?utf-8?b?a?= <a@example.com>", "broken encoded word"),
        ("=?ş?q?a?= <a@example.com>", "broken encoded word"),
        ("=?zlib?b?eJxLBAAAYgBi?= <a@example.com>", "broken encoded word"),
        ("=?utf-16?b?/v8A?= <a@example.com>", "broken encoded word"),
        ("=?unicode_escape?q?=5C?= <a@example.com>", "broken encoded word"),
        ("=?RAW-unicode_escape?q?a?= <a@example.com>", "broken encoded word"),
        ("=?punycode?q?a-9?= <a@example.com>", "broken encoded word"),
        ("=?unknown-8bit?q?=FF?= <a@example.com>", "broken encoded word"),
        ("a b@example.com", "invalid"),
        ("a..b@example.com", "periods"),
        (".a@example.com", "period"),
        ("a@example..com", "periods"),
        ("a@example.com.", "period"),
        ("a@-example.com", "hyphen"),
        ("a@ex_ample.com", "invalid"),
        ("a@ex ample.com", "invalid"),
        ("a@b@example.com", "invalid"),
        ("a@[127.0.0.1]", "bracket"),
        ("a@[IPv6:::1]", "bracket"),
        ("a@127.0.0.1", "number"),
        ("a@1", "number"),
        ("a@0x7f000001", "number"),
        ("a@127.0.0.0x1", "number"),
        ("a\u037eb@example.com", "invalid"),
        ("a@xn--a", "."),
        ("a@example.com\u200b", "."),
        ("a\u202e@example.com", "direction"),
        (f"{'a' * 65}@example.com", "64 bytes|too long"),
        (f"{'é' * 33}@example.com", "64 bytes"),
        (f"a@{'b' * 64}.com", "so many characters"),
        (f"a@{'b.' * 130}com", "254"),
        (f"a@{'örnek.' * 30}example", "too long"),
        (f"{'n' * 321} <a@example.com>", "321 characters"),
        ("x" * 1001, "1001 characters"),
    ],
)
def test_what_is_no_mailbox_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(MailboxError, match=problem) as caught:
        parse_mailbox(text)
    assert caught.value.advice
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("a@example.com", "a@example.com"),
        ("Yılmaz, Ayşe <ayse@xn--rnek-4qa.example>", '"Yılmaz, Ayşe" <ayse@örnek.example>'),
        (("Yılmaz, Ayşe", "ayse@örnek.example"), '"Yılmaz, Ayşe" <ayse@örnek.example>'),
        (("", "a@example.com"), "a@example.com"),
        (("  ", " a@example.com "), "a@example.com"),
        (('a" <x@x.test>, "b', "a@example.com"), r'"a\" <x@x.test>, \"b" <a@example.com>'),
        (("a@example.com", "A@Example.com"), '"a@example.com" <A@example.com>'),
        (("ayse@x.test via Shop", "a@example.com"), '"ayse@x.test via Shop" <a@example.com>'),
        (("Coffee@Home", "a@example.com"), '"Coffee@Home" <a@example.com>'),
        ('"a@x.test" <a@example.com>', '"a@x.test" <a@example.com>'),
        (["Ayşe", "a@example.com"], "Ayşe <a@example.com>"),
    ],
)
def test_enqueue_stores_one_form(value: Any, stored: str) -> None:
    assert canonical_mailbox("to", value) == stored


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        b"a@example.com",
        ("a@example.com",),
        ("Ayşe", None),
        ("Ayşe", "A <a@example.com>"),
        ("Ayşe\n", "a@example.com"),
        ("Ayşe", "a@example.com\nx"),
        ("Ayşe", "a@example.com, b@example.com"),
        ("Ayşe", ""),
        ("a@x.test", "b@x.test"),
        ["a@x.test", "b@x.test"],
        ("a@örnek.example", "b@x.test"),
        ("A <a@x.test>", "b@x.test"),
        ("=?ş?q?a?=", "a@example.com"),
        ("x" * 1001, "a@example.com"),
        {"a@example.com": 1},
    ],
)
def test_enqueue_names_the_field_of_what_it_refuses(value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        canonical_mailbox("cc[2]", value)
    assert caught.value.field == "cc[2]"
    assert caught.value.advice


@pytest.mark.parametrize(
    ("mailbox", "header"),
    [
        (Mailbox("", "a", "example.com"), "a@example.com"),
        (Mailbox("Ada Lovelace", "a", "example.com"), "Ada Lovelace <a@example.com>"),
        (Mailbox("O'Brien & Sons", "a", "example.com"), "O'Brien & Sons <a@example.com>"),
        (Mailbox("Dr. Ada", "a", "example.com"), '"Dr. Ada" <a@example.com>'),
        (Mailbox('a" <x@x.test>, "b', "a", "example.com"), r'"a\" <x@x.test>, \"b" <a@example.com>'),
        (Mailbox("Ayşe", "a", "örnek.example"), "=?utf-8?b?QXnFn2U=?= <a@xn--rnek-4qa.example>"),
        (Mailbox("Café Noir", "a", "example.com"), "=?utf-8?q?Caf=C3=A9_Noir?= <a@example.com>"),
        (Mailbox("=?utf-8?q?x?=", "a", "example.com"), "=?utf-8?b?PT91dGYtOD9xP3g/PQ==?= <a@example.com>"),
        (Mailbox("", '"a b"', "example.com"), '"a b"@example.com'),
        (Mailbox("", "用户", "例子.test"), "用户@xn--fsqu00a.test"),
    ],
)
def test_a_header_holds_ascii_that_means_the_same(mailbox: Mailbox, header: str) -> None:
    assert mailbox.header() == header
    assert header.isascii() is not mailbox.needs_smtputf8


def test_the_envelope_has_the_domain_in_punycode_and_the_local_part_as_it_is() -> None:
    assert parse_mailbox("Ayşe <Ayse@ÖRNEK.example>").envelope == "Ayse@xn--rnek-4qa.example"
    assert not parse_mailbox("Ayşe <Ayse@ÖRNEK.example>").needs_smtputf8
    assert parse_mailbox("用户@例子.test").envelope == "用户@xn--fsqu00a.test"
    assert parse_mailbox("用户@例子.test").needs_smtputf8


@pytest.mark.parametrize(
    ("text", "local_part"),
    [
        ("e\u0301@example.com", "\u00e9"),
        # A Greek question mark, which NFC makes a semicolon; that needs quotes.
        ('"a\u037eb"@example.com', '"a;b"'),
        # A sign for kelvin, which NFC makes a K: the validator writes this name in lower case.
        ("mar\u212aeting@example.com", "marKeting"),
        ('"a<\u0338b"@example.com', "a\u226eb"),
    ],
)
def test_a_local_part_is_composed_to_nfc_and_quoted_as_it_then_needs(text: str, local_part: str) -> None:
    mailbox = parse_mailbox(text)
    assert mailbox.local_part == local_part
    assert parse_mailbox(str(mailbox)) == mailbox
    assert mailbox.needs_smtputf8 is not local_part.isascii()


def test_an_error_repeats_nothing_of_a_domain() -> None:
    with pytest.raises(MailboxError) as caught:
        parse_mailbox("a@xn--secret-.\u0661\u0661secret.com")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '"' * 1000,
        '"' + "\\" * 998,
        '"' + "a\\" * 400 + '" <',
        "<" * 1000,
        "<" * 500 + ">" * 500,
        "a " * 500,
        "@" * 1000,
        "a." * 500,
        "=?" * 500,
        "=?a?q?" * 160 + " <a@example.com>",
        "=?utf-8?q?=?=" * 60 + " <a@example.com>",
        "(" * 1000,
        "a@" + "b-" * 120,
        "a@" + "\u0660" * 250,
        "a@" + "xn--" * 60,
        "a@" + "xn--" + "z" * 240,
        "é" * 250 + "@" + "ö" * 250,
        "\u0301" * 500 + "@x.test",
        "a@" + ".".join(["aé"] * 60),
        " " * 999 + "a",
        "," * 998 + "@@",
        "x" * 10_000_000,
    ],
)
def test_hostile_text_is_judged_quickly(text: str) -> None:
    parse_mailbox_quietly("warm@ü.example")
    start = time.process_time()
    for _ in range(10):
        parse_mailbox_quietly(text)
    assert time.process_time() - start < 0.5


def parse_mailbox_quietly(text: str) -> None:
    try:
        parse_mailbox(text)
    except MailboxError:
        return


def test_ordinary_addresses_do_not_load_the_validator() -> None:
    program = (
        "import sys\n"
        "from outbox_mail.mail.addresses import canonical_mailbox\n"
        "canonical_mailbox('to', 'Ayşe <a@example.com>')\n"
        "print([name for name in ('email_validator', 'idna', 'jinja2') if name in sys.modules])\n"
        "canonical_mailbox('to', 'a@örnek.example')\n"
        "print('email_validator' in sys.modules, 'dns' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True False"]


def test_a_name_that_is_taken_literally_is_checked_as_well() -> None:
    assert mailbox_of("Yılmaz, Ayşe", "a@example.com").display_name == "Yılmaz, Ayşe"
    with pytest.raises(MailboxError, match="line break"):
        mailbox_of("Ayşe\r\nBcc: x", "a@example.com")
