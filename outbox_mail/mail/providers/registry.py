"""From a URL to the provider that it names. Each provider's module is loaded when it is asked for."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from outbox_mail.errors import ConfigurationError
from outbox_mail.mail.providers.base import Provider
from outbox_mail.mail.providers.url import redact_url, scheme_of, split

ENTRY_POINTS: Final = "outbox_mail.providers"
"""The entry-point group in which other packages offer providers: scheme → callable(url) that returns a ``Provider``."""

_OWN: Final = {
    "smtp": "outbox_mail.mail.providers.smtp.provider:SmtpProvider.from_url",
    "smtps": "outbox_mail.mail.providers.smtp.provider:SmtpProvider.from_url",
    "console": "outbox_mail.mail.providers.console:ConsoleProvider.from_url",
    "folder": "outbox_mail.mail.providers.folder:FolderProvider.from_url",
    "memory": "outbox_mail.mail.providers.memory:MemoryProvider.from_url",
}

__all__ = ["ENTRY_POINTS", "provider_from_url", "redact_url", "schemes"]


def provider_from_url(url: str) -> Provider:
    """Make the provider that ``url`` names; nothing is connected yet.

    Raises ``ConfigurationError`` when scheme, option or value is unknown or malformed. It names what is allowed, and
    never shows a user name, password or value from the URL.
    """
    scheme = scheme_of(url)
    split(url)
    if scheme in _OWN:
        made: Provider = _load(_OWN[scheme])(url)
        return made
    offered = _offered()
    if scheme not in offered:
        known = sorted({*_OWN, *offered})
        close = difflib.get_close_matches(scheme, known, n=1)
        hint = f" Did you mean {close[0]}:?" if close else ""
        raise ConfigurationError(f"provider URL: there is no provider {scheme!r}.{hint} There are: {', '.join(known)}")
    return _from_entry_point(offered[scheme], url)


def schemes() -> list[str]:
    """Every scheme that ``provider_from_url`` knows, those of installed packages included."""
    return sorted({*_OWN, *_offered()})


def _load(reference: str) -> Callable[[str], Provider]:
    module, _, path = reference.partition(":")
    found = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    loaded: Callable[[str], Provider] = found  # type: ignore[assignment]
    return loaded


def _offered() -> dict[str, EntryPoint]:
    return {point.name.lower(): point for point in entry_points(group=ENTRY_POINTS)}


def _from_entry_point(point: EntryPoint, url: str) -> Provider:
    try:
        made: Provider = point.load()(url)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a stranger's code raises
        # What a stranger's code puts into its message may hold the URL.
        raise ConfigurationError(
            f"provider URL: the provider {point.name!r} of {point.value} could not be made ({type(error).__name__})"
        ) from None
    for needed in ("name", "send", "close"):
        if not hasattr(made, needed):
            raise ConfigurationError(f"provider URL: what {point.value} returns is no provider: it has no {needed!r}")
    return made
