"""Names of templates, of the files they include, and of locales. They come from rows, so they are never trusted."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

MAX_LENGTH: Final = 200
_DEEPEST: Final = 6

_TEMPLATE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?:/[A-Za-z0-9][A-Za-z0-9_.-]*)*")
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_LOCALE: Final = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")
_LOCALE_LENGTH: Final = 35


def is_template_name(name: object) -> bool:
    """Whether a row may ask for it: ``ORDER_CONFIRMED``, ``shop/ORDER_CONFIRMED``.

    No part starts with a dot or an underscore (folders of layouts do), so none is ``..``.
    """
    return isinstance(name, str) and _is_path(name, _TEMPLATE)


def is_file_name(name: object) -> bool:
    """Whether a template may include it: a plain relative path below the template folders."""
    return isinstance(name, str) and _is_path(name, _FILE)


def _is_path(name: str, pattern: re.Pattern[str]) -> bool:
    return (
        len(name) <= MAX_LENGTH
        and name.count("/") < _DEEPEST
        and ".." not in name
        and pattern.fullmatch(name) is not None
    )


@lru_cache(maxsize=1024)
def locale_chain(locale: str | None) -> tuple[str, ...]:
    """Which folders are looked into, the most special first: ``tr_tr`` gives ``tr-TR`` and ``tr``.

    Case as BCP 47 (RFC 5646, 2.1.1) recommends. What is not a locale gives none, which means the default: a mail in
    the default language is better than none.
    """
    if not isinstance(locale, str) or len(locale) > _LOCALE_LENGTH or not _LOCALE.fullmatch(locale):
        return ()
    language, *rest = re.split("[-_]", locale)
    parts = [
        language.lower(),
        *(
            part.title() if len(part) == 4 and part.isalpha() else part.upper() if len(part) == 2 else part.lower()
            for part in rest[:3]
        ),
    ]
    return tuple("-".join(parts[:length]) for length in range(len(parts), 0, -1))
