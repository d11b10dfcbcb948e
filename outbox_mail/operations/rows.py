"""Reading rows that any language may have written: what Python can't represent must not stop a person from looking."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection, Cursor, DataError
from psycopg.rows import dict_row
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import set_json_loads

FAR_FUTURE: Final = datetime.max.replace(tzinfo=UTC)
FAR_PAST: Final = datetime.min.replace(tzinfo=UTC)
_LONGEST_INTEGER: Final = 1000


class _AnyTimestamp(TimestamptzLoader):
    """PostgreSQL's times reach to infinity both ways; they are read as the last or first that Python knows."""

    def load(self, data: Any) -> datetime:
        try:
            return super().load(data)
        except DataError:
            text = bytes(data)
            return FAR_PAST if text.startswith(b"-") or text.endswith(b"BC") else FAR_FUTURE


def dict_cursor(connection: Connection[Any]) -> Cursor[dict[str, Any]]:
    """A cursor whose rows are dicts, and that reads every value that the tables can hold."""
    cursor = connection.cursor(row_factory=dict_row)
    cursor.adapters.register_loader("timestamptz", _AnyTimestamp)
    set_json_loads(_loads, cursor)
    return cursor


def _loads(text: str | bytes) -> Any:
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        # Nested deeper than Python reads: shown as it stands.
        return text if isinstance(text, str) else text.decode()


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else digits
