"""Mailboxes: ``ayse@örnek.example``, ``Ayşe Yılmaz <ayse@example.com>``, ``"Yılmaz, Ayşe" <ayse@example.com>``.

What is taken, and what is not:

- One mailbox a text. Lists and groups are refused with an error that says so; nothing is ever mailed to a part of them.
- Names are of any script, emoji included. Spaces are trimmed and runs of them become one. A name that is written as
  encoded words (``email.utils.formataddr`` does) is decoded. Refused: line breaks in any form, control characters, lone
  surrogates, and the characters that override, embed or isolate the direction of text (U+202A–202E, U+2066–2069), with
  which one name can look like another. Unquoted names may hold commas, brackets and quotes, as people write them in
  f-strings, but no ``<`` or ``>``.
- Addresses are what RFC 5321 §4.1.2 and RFC 6531 allow, quoted local parts included, within the limits of RFC 5321
  §4.5.3.1 (64 bytes before the ``@``, 254 in all). Letters outside ASCII before the ``@`` are taken; whether the mail
  server can carry them is known only when it is asked.
- Domains are host names, also international ones (IDNA 2008). All of them are taken that could exist in somebody's
  network: ``.test``, ``.local``, names without a dot. Not taken: addresses of machines (``[127.0.0.1]``), comments.
  Whether a domain receives mail is not asked.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from outbox_mail.errors import InvalidRequestError
from outbox_mail.mail.encoded_words import ENCODED_WORD, decoded_words, encoded_words

MAX_NAME: Final = 320
_MAX_TEXT: Final = 1000
_MAX_ADDRESS_BYTES: Final = 254
_MAX_LOCAL_BYTES: Final = 64

# Strictly narrower than what email-validator takes, whose answer for these is always "as it is, domain in lower case".
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL: Final = r"(?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PLAIN: Final = re.compile(rf"({_ATOM}(?:\.{_ATOM})*)@((?:[A-Za-z0-9]{_LABEL}\.)*[A-Za-z]{_LABEL})")

_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_BREAKS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_SPACES: Final = re.compile(r"[ \t]+")
_QUOTED_NAME: Final = re.compile(r'"((?:[^"\\]|\\.)*)"[ \t]*<')
_ESCAPED: Final = re.compile(r"\\(.)")
_TO_ESCAPE: Final = re.compile(r'(["\\])')
# RFC 5322 §3.2.3 specials: a name with one of them stands in quotes.
_SPECIALS: Final = re.compile(r'[()<>\[\]:;@\\,."]')
# Atoms, spaces between them; no "=?", so that nothing is taken for an encoded word.
_ASCII_PHRASE: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/^_`{|}~-]+)*")
# What the resolver takes for an address of IPv4, besides plain names of hosts.
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*")
_LONGEST_PHRASE: Final = 60
"""A longer name becomes encoded words, which can be folded anywhere."""

_ADDRESS_ADVICE: Final = "Pass one such as 'ayse@example.com' or 'Ayşe <ayse@example.com>'"
_NAME_ADVICE: Final = "Mend the name, or pass (name, address)"
_ONE_EACH: Final = "Pass a list with one mailbox for each recipient"


class MailboxError(ValueError):
    """A text is not a mailbox: ``problem`` is what is wrong, ``advice`` what to do. Neither repeats the text."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(f"{problem}. {advice}")
        self.problem = problem
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A valid mailbox; made by ``parse_mailbox``. ``str`` gives the text of a row, which parses to the same mailbox."""

    display_name: str
    """As a reader sees it; may be empty."""
    local_part: str
    """As it stands on the wire: quoted where it has to be, NFC."""
    domain: str
    """In lower case, in its own script."""

    @property
    def ascii_domain(self) -> str:
        """As it stands on the wire: labels outside ASCII in punycode (IDNA 2008)."""
        if self.domain.isascii():
            return self.domain
        import idna  # noqa: PLC0415 - only for international domains

        return idna.encode(self.domain).decode()

    @property
    def envelope(self) -> str:
        """The bare address, domain in ASCII. Two mailboxes are served once when theirs are the same."""
        return f"{self.local_part}@{self.ascii_domain}"

    @property
    def needs_smtputf8(self) -> bool:
        """Whether the address has letters outside ASCII before its ``@`` (RFC 6531)."""
        return not self.local_part.isascii()

    def __str__(self) -> str:
        address = f"{self.local_part}@{self.domain}"
        name = self.display_name
        if not name:
            return address
        if _SPECIALS.search(name):
            name = _quoted(name)
        return f"{name} <{address}>"

    def header(self) -> str:
        """What a header field holds: RFC 5322 with RFC 2047 for the name, on one line.

        ASCII, but for a local part that is not: there is no ASCII form of those (RFC 6532).
        """
        return " ".join(self.header_tokens(0))

    def header_tokens(self, column: int) -> list[str]:
        """``header`` in pieces between which a line may be folded; the first for a line of ``column`` characters."""
        if not self.display_name:
            return [self.envelope]
        tokens = _phrase(self.display_name, column)
        tokens.append(f"<{self.envelope}>")
        return tokens


def _quoted(name: str) -> str:
    return '"' + _TO_ESCAPE.sub(r"\\\1", name) + '"'


def _phrase(name: str, column: int) -> list[str]:
    if len(name) <= _LONGEST_PHRASE and name.isascii() and "=?" not in name:
        return name.split(" ") if _ASCII_PHRASE.fullmatch(name) else [_quoted(name)]
    return encoded_words(name, column)


def parse_mailbox(text: str) -> Mailbox:
    """The mailbox that ``text`` is; see the module for what is taken.

    Work grows no more than linearly with the text, and texts of more than 1000 characters are refused at once.

    Raises ``MailboxError``.
    """
    if len(text) > _MAX_TEXT:
        raise MailboxError(f"it has {len(text)} characters", f"Use {_MAX_TEXT} at most")
    if plain := _plain(text):
        return plain
    text = text.strip(" \t")
    if not text:
        raise MailboxError("it is empty", _ADDRESS_ADVICE)
    if _UNSAFE.search(text):
        _require_safe(text)
    if not text.endswith(">"):
        _require_one(text)
        return _address(text, "")
    if text.startswith('"') and (quoted := _QUOTED_NAME.match(text)):
        name, address = _ESCAPED.sub(r"\1", quoted[1]), text[quoted.end() : -1]
    else:
        name, _, address = text[:-1].partition("<")
        if ">" in name or ("@" in name and ("," in name or ";" in name)):
            raise MailboxError("it looks like several mailboxes", _ONE_EACH)
    address = address.strip(" \t")
    if ("<" in address or ">" in address) and not address.startswith('"'):
        raise MailboxError("it looks like several mailboxes", _ONE_EACH)
    return _address(address, _name(name))


def mailbox_of(name: str, address: str) -> Mailbox:
    """The mailbox with this name and this bare address; quotes, commas and brackets in the name are part of it.

    Raises ``MailboxError``.
    """
    if len(name) > _MAX_TEXT or len(address) > _MAX_TEXT:
        raise MailboxError(f"it has {max(len(name), len(address))} characters", f"Use {_MAX_TEXT} at most")
    _require_safe(name)
    address = address.strip(" \t")
    if not address:
        raise MailboxError("its address is empty", _ADDRESS_ADVICE)
    _require_safe(address)
    _require_one(address)
    return _address(address, _name(name))


def canonical_mailbox(field: str, value: object) -> str:
    """The text that a row holds for ``value``: a text, or a pair (name, address) as ``mailbox_of`` takes it.

    A pair of two different addresses is refused: it is more likely a list, whose first would get nothing.

    Raises ``InvalidRequestError`` that names ``field``.
    """
    try:
        if isinstance(value, str):
            return str(parse_mailbox(value))
        if isinstance(value, (tuple, list)) and len(value) == 2:
            name, address = value
            if isinstance(name, str) and isinstance(address, str):
                mailbox = mailbox_of(name, address)
                _require_no_recipient(name, mailbox)
                return str(mailbox)
    except MailboxError as error:
        raise InvalidRequestError(field, error.problem, error.advice) from None
    raise InvalidRequestError(field, f"{type(value).__name__} is not a mailbox", "Pass a str, or (name, address)")


def _require_no_recipient(name: str, mailbox: Mailbox) -> None:
    if "@" not in name:
        return
    try:
        other = parse_mailbox(name)
    except MailboxError:
        return
    # Without a dot it is rather a name, such as "Coffee@Home".
    if "." in other.domain and other.envelope.lower() != mailbox.envelope.lower():
        raise MailboxError(
            "it is two addresses", """Pass each as text; if one is the other's name, write '"name@x.com" <address>'"""
        )


def _plain(address: str, name: str = "") -> Mailbox | None:
    """The mailbox of an ordinary ASCII address, None for every other: those need a closer look."""
    found = _PLAIN.fullmatch(address)
    # "--" may be punycode, which has rules of its own.
    if found is None or len(address) > _MAX_ADDRESS_BYTES:
        return None
    local_part, domain = found.groups()
    if len(local_part) > _MAX_LOCAL_BYTES or "--" in domain:
        return None
    return Mailbox(name, local_part, domain.lower())


def _address(address: str, name: str) -> Mailbox:
    return _plain(address, name) or _validated(address, name)


def _validated(address: str, name: str) -> Mailbox:
    # Before it is judged: a Greek question mark becomes a semicolon, which an unquoted local part can't have.
    address = unicodedata.normalize("NFC", address)
    if len(address) > _MAX_ADDRESS_BYTES:
        raise MailboxError(f"its address has {len(address)} characters", f"Use {_MAX_ADDRESS_BYTES} at most")
    import email_validator  # noqa: PLC0415 - compiling its patterns takes 30 ms, and most addresses are plain

    reserved = _reserved_ending(address, email_validator.SPECIAL_USE_DOMAIN_NAMES)
    kept = len(address) - len(reserved)
    try:
        # The validator knows domains that nobody can have, which in somebody's network is not so.
        valid = email_validator.validate_email(
            address[:kept] + "x" * len(reserved),
            allow_smtputf8=True,
            allow_quoted_local=True,
            allow_domain_literal=False,
            allow_display_name=False,
            check_deliverability=False,
            globally_deliverable=False,
        )
    except ValueError as error:
        problem = str(error)
        if error.__cause__ is not None:
            # What follows is idna's, and quotes the domain.
            problem = problem.partition(" (")[0]
        problem = problem.rstrip(".")
        raise MailboxError(problem[:1].lower() + problem[1:200], _ADDRESS_ADVICE) from None
    domain = valid.domain
    if reserved:
        domain = domain[: -len(reserved)] + reserved
    if _NUMBER.fullmatch(domain.rpartition(".")[2]):
        raise MailboxError("its domain is a number", "Pass the name of a host or a domain after the @")
    local_part = valid.local_part
    if (raw := address.rpartition("@")[0]).lower() == local_part:
        # The validator writes Info@ and its like in lower case; only their server may.
        local_part = raw
    if len(local_part.encode()) > _MAX_LOCAL_BYTES:
        raise MailboxError(f"it has more than {_MAX_LOCAL_BYTES} bytes before the @", "No server must take more")
    return Mailbox(name, local_part, domain)


def _reserved_ending(address: str, reserved: list[str]) -> str:
    for domain in reserved:
        size = len(domain)
        if address[-size:].lower() == domain and address[-size - 1 : -size] in ("@", "."):
            return domain
    return ""


def _name(name: str) -> str:
    name = name.strip(" \t")
    if "  " in name or "\t" in name:
        name = _SPACES.sub(" ", name)
    if "=?" in name and ENCODED_WORD.search(name):
        name = _decoded(name)
    if len(name) > MAX_NAME:
        raise MailboxError(f"its name has {len(name)} characters", f"Use {MAX_NAME} at most")
    return name


def _decoded(name: str) -> str:
    try:
        decoded = decoded_words(name)
    except ValueError:
        raise MailboxError("its name is a broken encoded word", "Pass the name as plain Unicode text") from None
    _require_safe(decoded)
    if ENCODED_WORD.search(decoded):
        raise MailboxError("its name is encoded twice", "Pass the name as plain Unicode text")
    return _SPACES.sub(" ", decoded).strip(" ")


def _require_safe(text: str) -> None:
    found = _UNSAFE.search(text)
    while found and found[0] == "\t":
        found = _UNSAFE.search(text, found.end())
    if found is None:
        return
    character = found[0]
    code = f"U+{ord(character):04X}"
    if character in _LINE_BREAKS:
        raise MailboxError(f"it has a line break ({code})", "Remove it")
    if "\ud800" <= character <= "\udfff":
        raise MailboxError(f"it has a lone surrogate ({code})", "Pass valid Unicode")
    if character > "\u2000":
        raise MailboxError(f"it has a character that turns the direction of text ({code})", "Remove it")
    raise MailboxError(f"it has a control character ({code})", "Remove it")


def _require_one(text: str) -> None:
    if text.startswith('"'):
        return
    if text.endswith(";") and ":" in text:
        raise MailboxError("it is a group", _ONE_EACH)
    if text.count("@") > 1 and ("," in text or ";" in text):
        raise MailboxError("it looks like several mailboxes", _ONE_EACH)
    if "<" in text or ">" in text:
        raise MailboxError("it has something behind its address, or an angle bracket has no partner", _ADDRESS_ADVICE)
    if "(" in text:
        raise MailboxError("it has a comment", "Pass the name before the address: 'Ayşe <ayse@example.com>'")
