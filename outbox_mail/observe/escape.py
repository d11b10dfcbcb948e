"""Text that others wrote, made harmless for a terminal or a log."""

from __future__ import annotations

import re
from typing import Final

# Control characters of both kinds, and what separates lines, hides, or turns the direction of text.
_UNSAFE: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u00ad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb"
    "\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)


def safe(value: object) -> str:
    """``value`` as text in which everything that could steer a terminal is spelled out (``\\x1b``)."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], str(value))
