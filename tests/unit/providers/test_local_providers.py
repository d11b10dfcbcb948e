"""Console, folder and memory."""

from __future__ import annotations

import dataclasses
import io
import os
from pathlib import Path

import pytest

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Deadline, RecipientOutcome, State
from outbox_mail.mail.providers.console import ConsoleProvider
from outbox_mail.mail.providers.folder import FolderProvider
from outbox_mail.mail.providers.memory import MemoryProvider
from outbox_mail.testing.mails import composed_mail


def soon() -> Deadline:
    return Deadline.after(5)


MULTIPART = (
    b"From: =?utf-8?b?xZ5ob3A=?= <shop@example.com>\r\nTo: a@example.com\r\n"
    b"Subject: =?utf-8?q?Sipari=C5=9F?=\r\nMIME-Version: 1.0\r\n"
    b'Content-Type: multipart/mixed; boundary="m"\r\n\r\n'
    b'--m\r\nContent-Type: multipart/alternative; boundary="a"\r\n\r\n'
    b"--a\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
    b"Te=C5=9Fekk=C3=BCrler =1B[2J\r\n"
    b"--a\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>html</p>\r\n--a--\r\n"
    b'--m\r\nContent-Type: text/csv; name="r.csv"\r\nContent-Disposition: attachment; filename="r.csv"\r\n'
    b"Content-Transfer-Encoding: base64\r\n\r\nYSxi\r\n--m--\r\n"
)


def test_the_console_shows_what_a_reader_sees_and_no_escape_sequences() -> None:
    stream = io.StringIO()
    mail = dataclasses.replace(composed_mail("a@example.com", "bcc@example.com"), data=MULTIPART)
    ConsoleProvider(stream).send(mail, soon())
    shown = stream.getvalue()
    assert "Envelope: shop@example.com → a@example.com, bcc@example.com" in shown
    assert "From: Şhop <shop@example.com>" in shown
    assert "Subject: Sipariş" in shown
    assert "Teşekkürler" in shown
    assert "[attachment: r.csv, text/csv]" in shown
    assert "\x1b" not in shown
    assert "<p>" not in shown


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n",
        b"no header at all",
        b"Content-Type: text/plain; charset=no-such\r\n\r\n\xff\xfe\r\n",
        b"Content-Type: multipart/mixed\r\n\r\nno boundary\r\n",
        b"Content-Type: message/rfc822\r\n\r\n\r\n",
        b"Subject: =?x?y?z?=\r\nFrom: <<>>,\r\n\r\n",
        bytes(range(256)),
    ],
)
def test_the_console_shows_something_of_any_bytes(data: bytes) -> None:
    stream = io.StringIO()
    ConsoleProvider(stream).send(dataclasses.replace(composed_mail(), data=data), soon())
    assert "Envelope:" in stream.getvalue()


def test_a_terminal_that_is_not_utf8_gets_what_it_can_show() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    ConsoleProvider(stream).send(composed_mail(), soon())
    assert b"someone@example.com" in raw.getvalue()
    assert b"?" in raw.getvalue()  # the arrow


def test_a_closed_console_is_transient() -> None:
    stream = io.StringIO()
    stream.close()
    with pytest.raises(ProviderError) as caught:
        ConsoleProvider(stream).send(composed_mail(), soon())
    assert caught.value.error_class is ErrorClass.TRANSIENT


def test_the_folder_names_the_file_by_the_rows_id_and_a_repeat_replaces_it(tmp_path: Path) -> None:
    provider = FolderProvider(tmp_path)
    mail = composed_mail("a@example.com", "bcc@example.com")
    for _ in range(2):
        assert provider.send(mail, soon()).provider_message_id == str(mail.id)
    [written] = (tmp_path / "new").iterdir()
    assert written.name == str(mail.id)
    assert written.read_bytes() == (
        b"Return-Path: <shop@example.com>\r\nDelivered-To: a@example.com\r\nDelivered-To: bcc@example.com\r\n"
        + mail.data
    )
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_address_cannot_write_headers_into_the_file(tmp_path: Path) -> None:
    mail = composed_mail("a@example.com\r\nX-Evil: 1\r\n\r\nbody")
    FolderProvider(tmp_path).send(mail, soon())
    assert b"\nX-Evil" not in (tmp_path / "new" / str(mail.id)).read_bytes()


def test_a_folder_that_is_gone_is_the_operators_fault(tmp_path: Path) -> None:
    provider = FolderProvider(tmp_path / "maildir")
    for part in ("tmp", "new", "cur"):
        (tmp_path / "maildir" / part).rmdir()
    with pytest.raises(ProviderError, match="could not be written") as caught:
        provider.send(composed_mail(), soon())
    assert caught.value.error_class is ErrorClass.OPERATOR


def test_a_full_disk_is_transient_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    provider = FolderProvider(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProviderError) as caught:
        provider.send(composed_mail(), soon())
    assert caught.value.error_class is ErrorClass.TRANSIENT
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "new").iterdir()) == []


def test_the_memory_provider_does_as_it_is_told() -> None:
    provider = MemoryProvider()
    provider.fail_next(ProviderError("smtp_451", "later", error_class=ErrorClass.TRANSIENT))
    with pytest.raises(ProviderError, match="later"):
        provider.send(composed_mail(), soon())
    provider.answer("no@example.com", RecipientOutcome(State.REFUSED, "550", "no such user"))
    result = provider.send(composed_mail("no@example.com", "yes@example.com"), soon())
    assert [outcome.state for outcome in result.outcomes.values()] == [State.REFUSED, State.ACCEPTED]
    result = provider.send(composed_mail("no@example.com"), soon())
    assert result.outcomes["no@example.com"].code == "550"
    assert len(provider.sent) == 1
    provider.clear()
    assert provider.sent == []
    provider.send(composed_mail("no@example.com"), soon())
    assert len(provider.sent) == 1
