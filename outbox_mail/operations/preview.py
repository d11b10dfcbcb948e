"""Seeing what a template makes of parameters, without a message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from outbox_mail.errors import UsageError
from outbox_mail.mail.compose.content import RenderedContent
from outbox_mail.mail.templates import Templates

MAX_PARAMETERS_BYTES = 5_000_000


def preview(
    folders: Sequence[Path], template: str, parameters: str, *, locale: str | None = None, schema_version: int = 1
) -> RenderedContent:
    """Render ``template`` with ``parameters``, a JSON object as text, as a worker would.

    Raises ``UsageError`` when they are none, ``TemplateError`` as a worker does, ``ConfigurationError`` when a folder
    is not there.
    """
    if len(parameters) > MAX_PARAMETERS_BYTES:
        raise UsageError("parameters", "they are longer than 5 MB", "Give fewer")
    try:
        values = json.loads(parameters)
    except (ValueError, RecursionError) as error:
        raise UsageError("parameters", f"they are not JSON ({error})", 'Write an object: {"name": "Ayşe"}') from None
    if not isinstance(values, dict):
        raise UsageError("parameters", "they are no JSON object", 'Write {"name": "Ayşe"}')
    return Templates(folders).render(template, values, locale=locale, schema_version=schema_version)
