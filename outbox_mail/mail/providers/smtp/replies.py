"""What a server's replies mean. Whatever they hold was written by a stranger."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from outbox_mail.errors import ErrorClass

_MAX_TEXT: Final = 300
_LONGEST_HINT_SECONDS: Final = 24 * 3600.0
_ENHANCED: Final = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?:\s|$)")
_WAIT: Final = re.compile(
    r"\b(?:in|after|for|wait|next)\s+(\d{1,6})\s*(s|m|h)(?:ecs?|econds?|ins?|inutes?|ours?)?\b", re.IGNORECASE
)
_CLOCK: Final = re.compile(r"\b(?:in|after|for|wait)\s+(\d{1,2}):([0-5]\d):([0-5]\d)\b", re.IGNORECASE)
_UNIT_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
# 552 and 554 are meant for good, and used for "not now" by servers without a better word.
_LATER: Final = re.compile(
    r"try (?:again )?later|try again in|temporar|over ?quota|quota exceeded|exceeded .{0,30}quota|mailbox (?:is )?full"
    r"|insufficient (?:system )?storage|out of storage|throttl|rate.?limit|grey-?list|defer",
    re.IGNORECASE,
)
# The account may not use this sender at all: no other mail of the same sender would pass either.
_OUR_FAULT: Final = re.compile(
    r"relay(?:ing)? (?:access )?(?:denied|not (?:allowed|permitted))|not (?:allowed|permitted) to relay|unable to relay"
    r"|authenticat(?:e first|ion (?:is )?required)|not authenticated|not verified|verified sender",
    re.IGNORECASE,
)
_QUEUED: Final = (
    re.compile(r"queued as ([\w.+@:/-]{3,128})", re.IGNORECASE),
    re.compile(r"\bid=([\w.+@:/-]{3,128})", re.IGNORECASE),
    re.compile(r"\bInternalId=(\d{1,32})", re.IGNORECASE),
    re.compile(r"(?:2\.0\.0 )?Ok:? ([\w.+@-]{16,128})$", re.IGNORECASE),
    re.compile(r"2\.0\.0 ([\w-]{10,64}) Message accepted", re.IGNORECASE),
)


class Stage(StrEnum):
    """Which command was answered."""

    CONNECT = "the connection"
    AUTH = "AUTH"
    MAIL = "MAIL"
    RCPT = "RCPT"
    DATA = "DATA"


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply, of one or several lines."""

    code: int
    raw: bytes
    """The lines after their codes, joined by LF."""

    @property
    def positive(self) -> bool:
        """2yz."""
        return 200 <= self.code < 300

    @property
    def negative(self) -> bool:
        """4yz or 5yz. What is neither this nor ``positive`` has no place outside DATA and AUTH."""
        return 400 <= self.code < 600

    @property
    def text(self) -> str:
        """The words, on one line, bounded, with nothing that a terminal or a log could take for more than words."""
        return printable(self.raw.decode("utf-8", "replace"))


def printable(text: str) -> str:
    """``text`` without control and formatting characters, with single spaces, cut to 300 characters."""
    kept = text[: 4 * _MAX_TEXT]
    if not kept.isprintable():
        kept = "".join(character if character.isprintable() else " " for character in kept)
    line = " ".join(kept.split())
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


def enhanced_code(reply: Reply) -> str:
    """The status code of RFC 3463 at the start of the text, or nothing."""
    found = _ENHANCED.match(reply.text)
    return found.group(1) if found else ""


def class_of(reply: Reply, stage: Stage) -> ErrorClass:
    """What a 4yz or 5yz reply means for the message (at RCPT: for this one recipient).

    Permanent and transient are as in RFC 5321 §4.2.1, with these exceptions. Whatever goes wrong for good before MAIL
    is not the message's fault, nor are the replies of RFC 4954 that ask for (other) authentication, nor a refusal at
    MAIL to relay or to take this sender from this account. At RCPT a refusal to relay counts for the recipient alone:
    one odd address must not stop everybody's mail. 552 at RCPT means "too many recipients" (RFC 5321 §4.5.3.1.10) or a
    full mailbox, and waits; 552 and 554 elsewhere wait if their words say so.
    """
    code = reply.code
    if code in {530, 534, 535, 538} or (code == 432 and stage is Stage.AUTH):
        return ErrorClass.OPERATOR
    if code < 500:
        return ErrorClass.TRANSIENT
    if stage in {Stage.CONNECT, Stage.AUTH}:
        return ErrorClass.OPERATOR
    if stage in {Stage.MAIL, Stage.DATA} and code in {550, 551, 553, 554} and _OUR_FAULT.search(reply.text):
        return ErrorClass.OPERATOR
    if code in {552, 554} and _is_for_now(reply, stage):
        return ErrorClass.TRANSIENT
    return ErrorClass.PERMANENT


def _is_for_now(reply: Reply, stage: Stage) -> bool:
    enhanced = enhanced_code(reply)
    if reply.code == 552:
        if enhanced in {"5.2.3", "5.3.4"}:  # too large for the mailbox, for the system
            return False
        if stage is Stage.RCPT or enhanced == "5.2.2":
            return True
    return _LATER.search(reply.text) is not None


def wait_hint_seconds(reply: Reply) -> float | None:
    """How long a 4yz reply asks to wait ("try again in 300 seconds", "come back in 00:04:59"), a day at most."""
    text = reply.text
    if found := _CLOCK.search(text):
        hours, minutes, seconds = (int(part) for part in found.groups())
        hint = hours * 3600.0 + minutes * 60.0 + seconds
    elif found := _WAIT.search(text):
        hint = int(found.group(1)) * _UNIT_SECONDS[found.group(2).lower()]
    else:
        return None
    return min(hint, _LONGEST_HINT_SECONDS) or None


def queue_id(reply: Reply) -> str | None:
    """The server's own name for the mail, as Postfix, Exim, Sendmail, Exchange and SES write it; None if not seen."""
    text = reply.text
    return next((found.group(1) for pattern in _QUEUED if (found := pattern.search(text))), None)
