"""Provider URLs: read strictly, and shown without their secrets.

A typing error must stop the start-up with words that help, and the words must never hold what was typed as a password.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from outbox_mail.errors import ConfigurationError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SECRET_NAME: Final = re.compile(r"key|token|secret|pass|auth|sig|cred", re.IGNORECASE)
_FLAGS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_ENCODE: Final = "Percent-encode special characters in user name and password (@ is %40, / is %2F, # is %23)"


def scheme_of(url: str) -> str:
    """The scheme in lower case. Raises ``ConfigurationError`` when there is none."""
    if not (found := _SCHEME.match(url)):
        raise ConfigurationError("provider URL: it must begin with a scheme, such as smtp:// or console:")
    return found.group(1).lower()


def split(url: str) -> SplitResult:
    """The parts of ``url``. Raises ``ConfigurationError``, which does not show them, when it has no legal form."""
    if re.search(r"[\x00-\x20\x7f]", url):
        raise ConfigurationError(f"provider URL: it has a space or control character. {_ENCODE}")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigurationError(f"provider URL: it can't be read as a URL. {_ENCODE}") from None
    if "#" in url:
        raise ConfigurationError(f"provider URL: # has no meaning in it. {_ENCODE}")
    return parts


def redact_url(url: str) -> str:
    """``url`` fit for a log: no user name or password (a token may stand for either), no value that may be a key."""
    scheme, found, rest = url.partition(":")
    if not found:
        return "***"
    head, question, query = rest.partition("?")
    # The last @: an unescaped one in a password must not split it. An @ in the query may belong to the password too.
    if "@" in query:
        return f"{scheme}:***"
    if "@" in head:
        head = f"{'//' if head.startswith('//') else ''}***@{head.rpartition('@')[2]}"
    pairs = (pair.partition("=") for pair in query.split("&")) if question else ()
    shown = "&".join(f"{name}={'***' if _SECRET_NAME.search(name) else value}" for name, _, value in pairs)
    return f"{scheme}:{head}{question}{shown}"


def credentials_of(url: SplitResult) -> tuple[str | None, str | None]:
    """User name and password, percent-decoded; both or neither."""
    if url.username is None:
        return None, None
    if not url.username or not url.password:
        raise ConfigurationError(f"provider URL: give both a user name and a password before the @, or none. {_ENCODE}")
    username, password = unquote(url.username), unquote(url.password)
    if "\0" in username + password:
        raise ConfigurationError("provider URL: user name and password can't hold NUL")
    return username, password


def host_and_port_of(url: SplitResult, default_port: int) -> tuple[str, int]:
    """The host, and the port if it is given. Raises ``ConfigurationError`` when either is malformed."""
    try:
        port = url.port
    except ValueError:
        port = 0
    if port is not None and not 1 <= port <= 65535:
        raise ConfigurationError(f"provider URL: the port must be a number from 1 to 65535. {_ENCODE}")
    if not url.hostname or not re.fullmatch(r"[\w.:%-]+", url.hostname):
        raise ConfigurationError(f"provider URL: the host is missing or malformed: {url.scheme}://host:port. {_ENCODE}")
    return url.hostname, port or default_port


def refuse_path(url: SplitResult) -> None:
    """Raise ``ConfigurationError`` when there is a path."""
    if url.path not in {"", "/"}:
        raise ConfigurationError(f"provider URL: {url.scheme}:// takes no path after host and port. {_ENCODE}")


def refuse_user(url: SplitResult) -> None:
    """Raise ``ConfigurationError`` when there is a user name or password."""
    if "@" in url.netloc:
        raise ConfigurationError(f"provider URL: {url.scheme}: takes no user name and password")


def refuse_host(url: SplitResult) -> None:
    """Raise ``ConfigurationError`` when there is a host."""
    if url.netloc:
        raise ConfigurationError(f"provider URL: {url.scheme}: takes nothing after //. Write {url.scheme}:")


class Query:
    """A URL's options. Each that a provider knows is taken by name; ``refuse_the_rest`` refuses what is left."""

    def __init__(self, url: SplitResult) -> None:
        try:
            pairs = parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query), max_num_fields=50)
        except ValueError:
            raise ConfigurationError("provider URL: options are written ?name=value&name=value") from None
        self._given = dict(pairs)
        if len(self._given) != len(pairs):
            raise ConfigurationError("provider URL: an option is given twice")
        self._known: list[str] = []

    def text(self, name: str, *, pattern: str | None = None) -> str | None:
        """The option's text, or None when it is not given."""
        self._known.append(name)
        value = self._given.pop(name, None)
        if value is not None and (not value or "\0" in value or (pattern and not re.fullmatch(pattern, value))):
            raise ConfigurationError(f"provider URL: the value of {name} is empty or malformed")
        return value

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        """One of ``allowed``."""
        value = self.text(name)
        if value is not None and value.lower() not in allowed:
            raise ConfigurationError(f"provider URL: {name} must be one of {', '.join(allowed)}")
        return default if value is None else value.lower()

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.text(name)
        if value is not None and value.lower() not in _FLAGS:
            raise ConfigurationError(f"provider URL: {name} must be true or false")
        return default if value is None else _FLAGS[value.lower()]

    def number(self, name: str, default: float, *, lowest: float, highest: float) -> float:
        """A number within bounds."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not lowest <= number <= highest:
            raise ConfigurationError(f"provider URL: {name} must be a number from {lowest:g} to {highest:g}")
        return number

    def refuse_the_rest(self) -> None:
        """Raise ``ConfigurationError`` for the first option that nobody asked for, with those there are."""
        for name in self._given:
            close = difflib.get_close_matches(name, self._known, n=1)
            # Shown only when near to a known name: else it may be the tail of a password with an unescaped "?".
            what = f"{name!r} is no option. Did you mean {close[0]}?" if close else "an option is unknown."
            known = f"Options are: {', '.join(self._known)}" if self._known else "It takes no options"
            raise ConfigurationError(f"provider URL: {what} {known}")
