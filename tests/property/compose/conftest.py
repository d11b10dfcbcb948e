"""``--hypothesis-profile=thorough --timeout=0`` makes ten thousand mails of each kind."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("thorough", max_examples=10_000)
