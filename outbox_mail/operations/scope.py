"""What a hold can cover; apart, so that the command line can name it without loading a driver."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """What a hold covers."""

    ALL = "all"
    TEMPLATE = "template"
    PROVIDER = "provider"
    TAG = "tag"
    ORDERING_KEY = "ordering_key"
