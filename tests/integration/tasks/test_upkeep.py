"""Beat's jobs through the real beat and worker: they find their rows, and two beats at once do no harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from outbox_mail import Attachment, enqueue
from outbox_mail.testing.deployment import Deployment

Connection = psycopg.Connection[Any]


def test_beat_reaps_and_retains_and_two_of_them_do_no_harm(
    deployment: Deployment, connection: Connection, tmp_path: Path
) -> None:
    store = tmp_path / "files"
    store.mkdir()
    attachment = Attachment.from_bytes(b"x", filename="a.txt", store=f"file://{store}")
    old = enqueue(connection, to="a@example.com", template="HELLO", attachments=[attachment])
    stuck = enqueue(connection, to="a@example.com", template="HELLO")
    ancient = enqueue(connection, to="a@example.com", template="HELLO")
    connection.execute(
        "UPDATE email_messages SET status = 'SENT', claims = 1, sent_at = now() - interval '100 days' WHERE id = %s",
        [old],
    )
    connection.execute(
        "UPDATE email_messages SET status = 'SENDING', claims = 1, locked_at = now() - interval '1 hour' WHERE id = %s",
        [stuck],
    )
    connection.execute(
        "UPDATE email_messages SET created_at = now() - interval '900 days', due_at = now() + interval '1 day'"
        " WHERE id = %s",
        [ancient],
    )
    timing = {
        "OUTBOX_MAIL_REAP_INTERVAL_SECONDS": "1",
        "OUTBOX_MAIL_RETENTION_INTERVAL_SECONDS": "1",
        "OUTBOX_MAIL_ATTACHMENT_STORES": f"file://{store}",
    }
    deployment.beat(**timing)
    deployment.beat(**timing)
    deployment.worker(**timing)

    deployment.until(lambda: deployment.statuses() == {"PENDING": 2})

    rows = connection.execute("SELECT id, reap_count FROM email_messages ORDER BY reap_count").fetchall()
    assert rows == [(ancient, 0), (stuck, 1)]
    recorded = connection.execute("SELECT storage_ref FROM email_files_to_remove").fetchall()
    assert recorded == [(attachment.storage_ref,)]


def test_the_workers_metrics_tell_of_what_it_did(deployment: Deployment, connection: Connection) -> None:
    import socket
    import urllib.request

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    enqueue(connection, to="a@example.com", template="HELLO", parameters={"name": "x"})
    deployment.relay()
    deployment.worker(OUTBOX_MAIL_WORKER_METRICS_PORT=str(port))
    deployment.until(deployment.all_sent(1))

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()

    assert 'outbox_mail_send_seconds_count{provider="smtp"} 1.0' in text
