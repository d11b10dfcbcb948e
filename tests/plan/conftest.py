"""A table with far more finished rows than waiting ones, and statistics from before they came."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

_FILL = """
    INSERT INTO email_messages (id, "to", template, status, claims, sent_at, failed_at, error_code, locked_at, due_at)
    SELECT gen_random_uuid(), ARRAY['a@example.com'], 'T', status, 1,
        CASE status WHEN 'SENT' THEN now() - n * interval '1 second' END,
        CASE status WHEN 'FAILED' THEN now() - n * interval '1 second' END,
        CASE status WHEN 'FAILED' THEN 'smtp_550' END,
        CASE status WHEN 'SENDING' THEN now() - n * interval '1 second' END,
        now() - n * interval '1 second'
    FROM (SELECT n, CASE WHEN n % 100 < 90 THEN 'SENT' WHEN n % 100 < 97 THEN 'FAILED'
        WHEN n % 100 < 98 THEN 'SENDING' ELSE 'PENDING' END AS status FROM generate_series(1, 20000) n) rows"""


@pytest.fixture(params=["old statistics", "fresh statistics"])
def filled(request: pytest.FixtureRequest, connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A connection to it."""
    connection.execute("ALTER TABLE email_messages SET (autovacuum_enabled = false)")
    connection.execute("ANALYZE email_messages")
    connection.execute(_FILL)
    if request.param == "fresh statistics":
        connection.execute("VACUUM ANALYZE email_messages")
    return connection
