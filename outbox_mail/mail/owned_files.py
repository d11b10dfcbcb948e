"""Removes attachment files that the system owns, once no row names them.

Files go in two steps. First their names are recorded in ``email_files_to_remove``, by the statement that removes their
row, or by the sweep for those that never had one. Later, at the earliest after a grace, a recorded file that no row
names goes. A crash in between leaves the record, so no file is forgotten; and no file goes before a commit.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from psycopg import Connection

from outbox_mail.errors import AttachmentError, ErrorClass
from outbox_mail.mail.attachments.storage_ref import MAX_LENGTH, StorageRef
from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.tables import email_files_to_remove, email_messages
from outbox_mail.outbox.retention import sleep
from outbox_mail.outbox.signals import FilesRemoved, Signals

GRACE_SECONDS: Final = 3600.0
"""Longer than a producer takes from reading a row's reference to the commit of another row with it."""
MAX_SECONDS: Final = 100.0
SWEEP_MAX_SECONDS: Final = 300.0
SWEEP_MAX_FILES: Final = 1000
"""Orphans are rare. More than this show that the store is another database's, too, or that this one lost its rows."""
_BATCH: Final = 500
_DAY_SECONDS: Final = 86_400
# A store that is down costs this many timeouts a run, not one for each of its files.
_FAILURES_IN_A_ROW: Final = 5
# PostgreSQL refuses longer keys in an index, and a name it refuses would stop the rows' removal for ever.
_MAX_KEY_BYTES: Final = 2600

_TABLE: Final = email_files_to_remove.name
# In a partial index: the first condition is what lets the planner use it.
_NAMED: Final = f"""EXISTS (SELECT FROM {email_messages.name} m WHERE m.attachments <> '[]'::jsonb
            AND m.attachments @> jsonb_build_array(jsonb_build_object('storage_ref', %s)))"""
_log = logging.getLogger(__name__)

# In order, so that two runs that record the same names wait for each other instead of in a circle. Recorded again, a
# name has its grace again.
RECORD_WITH_ROWS: Final = f"""
        recorded AS (
            INSERT INTO {_TABLE} (storage_ref)
            SELECT DISTINCT a.item ->> 'storage_ref'
            FROM removed r CROSS JOIN LATERAL jsonb_array_elements(r.attachments) a(item)
            WHERE a.item -> 'owned' = 'true'::jsonb AND jsonb_typeof(a.item -> 'storage_ref') = 'string'
                AND char_length(a.item ->> 'storage_ref') <= {MAX_LENGTH}
                AND octet_length(a.item ->> 'storage_ref') <= {_MAX_KEY_BYTES}
            ORDER BY 1
            ON CONFLICT (storage_ref) DO UPDATE SET recorded_at = now())"""
"""The CTE that records the owned files of ``removed`` rows: for ``retain``'s ``also``."""

_TAKE_SQL: Final = f"""
        UPDATE {_TABLE} SET recorded_at = now()
        WHERE storage_ref = ANY (ARRAY(
            SELECT f.storage_ref FROM {_TABLE} f WHERE f.recorded_at < %(before)s
            ORDER BY f.recorded_at LIMIT {_BATCH} FOR UPDATE SKIP LOCKED))
        RETURNING storage_ref"""

RECORD_ORPHANS_SQL: Final = f"""
        INSERT INTO {_TABLE} (storage_ref)
        SELECT o.ref FROM unnest(%(refs)s::text[]) o(ref)
        WHERE octet_length(o.ref) <= {_MAX_KEY_BYTES} AND NOT {_NAMED % "o.ref"}
            AND NOT EXISTS (SELECT FROM {_TABLE} t WHERE t.storage_ref = o.ref)
        ORDER BY 1 LIMIT %(limit)s
        ON CONFLICT (storage_ref) DO NOTHING"""


def remove_files(
    connection: Connection[Any],
    stores: Stores,
    signals: Signals,
    *,
    grace_seconds: float = GRACE_SECONDS,
    max_seconds: float = MAX_SECONDS,
    wait: Callable[[float], bool] = sleep,
) -> int:
    """Remove the recorded files that no row names; returns how many were there and are gone.

    Only names recorded at least ``grace_seconds`` ago are looked at, each once a run, and again at the earliest after
    another ``grace_seconds``: those that a row still names, that a store refused, or whose store is down. After five
    failures of one store in a row its other files are left for later. Ends after ``max_seconds``, or when ``wait`` says
    so, which is asked before each file. Holds no transaction while a store is at work; several may run at once.

    Emits ``FilesRemoved``, and logs how many failed of what, when there was anything to tell, also when the database
    breaks off in the middle. A name that no store could have (``StorageRef`` refuses it) is forgotten.
    """
    give_up_at = time.monotonic() + max_seconds
    (before,) = connection.execute("SELECT now() - make_interval(secs => %s)", [grace_seconds]).fetchone() or (None,)
    removed = 0
    problems: Counter[str] = Counter()
    in_a_row: Counter[str] = Counter()
    try:
        while taken := [ref for (ref,) in connection.execute(_TAKE_SQL, {"before": before}).fetchall()]:
            for ref in taken:
                if time.monotonic() >= give_up_at or wait(0):
                    return removed
                store = _store_of(stores, ref)
                if in_a_row[store] >= _FAILURES_IN_A_ROW:
                    problems["store_left_for_later"] += 1
                    continue
                if _is_named(connection, ref):
                    continue
                try:
                    removed += stores.remove(ref)
                    in_a_row[store] = 0
                except AttachmentError as error:
                    problems[error.code] += 1
                    in_a_row[store] += error.error_class is ErrorClass.TRANSIENT
                    if _is_plain(ref):
                        continue
                connection.execute(f"DELETE FROM {_TABLE} WHERE storage_ref = %s", [ref])
        return removed
    finally:
        for code, count in problems.items():
            _log.warning("files_not_removed", extra={"error_code": code, "count": count})
        if removed or problems:
            signals.emit(FilesRemoved(removed, problems.total()))


def sweep_orphans(
    connection: Connection[Any],
    stores: Stores,
    *,
    older_than_days: float,
    max_files: int = SWEEP_MAX_FILES,
    max_seconds: float = SWEEP_MAX_SECONDS,
    wait: Callable[[float], bool] = sleep,
) -> int:
    """Record the files that ``Attachment`` stored longer ago than ``older_than_days`` and no row names.

    Their producer was rolled back, or wrote no row. Nothing is removed here: ``remove_files`` does so after its grace,
    when there is still no row. Returns how many names were recorded. Reads the names of all owned files of all
    allowed stores, so it belongs once a day, not once an hour. ``older_than_days`` of 0 does nothing.

    A store that is down is logged and passed over. Ends after ``max_files`` were recorded or ``max_seconds`` have
    passed, both of which are logged, or when ``wait`` says so.
    """
    recorded = 0
    if older_than_days <= 0:
        return recorded
    give_up_at = time.monotonic() + max_seconds
    for store in stores.allowed:
        try:
            for refs in _batches(stores.list_owned(store, older_than_days * _DAY_SECONDS)):
                recorded += connection.execute(
                    RECORD_ORPHANS_SQL, {"refs": refs, "limit": max_files - recorded}
                ).rowcount
                if wait(0):
                    return recorded
                if recorded >= max_files or time.monotonic() >= give_up_at:
                    _log.warning("orphans_swept_in_part", extra={"store": store, "recorded": recorded})
                    return recorded
        except AttachmentError as error:
            _log.warning("orphans_not_swept", extra={"store": store, "error_code": error.code})
    return recorded


def _is_named(connection: Connection[Any], ref: str) -> bool:
    row = connection.execute(f"SELECT {_NAMED % '%(ref)s::text'}", {"ref": ref}).fetchone()
    return bool(row and row[0])


def _batches(refs: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(refs, _BATCH)):
        yield batch


def _store_of(stores: Stores, ref: str) -> str:
    return next((store for store in stores.allowed if ref.startswith(f"{store}/")), "")


def _is_plain(ref: str) -> bool:
    """Whether any store could ever hold a file of this name."""
    try:
        StorageRef.parse(ref)
    except ValueError:
        return False
    return True
