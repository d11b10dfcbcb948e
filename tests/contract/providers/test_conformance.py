"""What every provider must do. A new one adds a case here and passes."""

from __future__ import annotations

import io
import mailbox
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Composed, Deadline, Provider, SendResult, State
from outbox_mail.mail.providers.console import ConsoleProvider
from outbox_mail.mail.providers.memory import MemoryProvider
from outbox_mail.mail.providers.registry import provider_from_url
from outbox_mail.testing.mails import composed_mail
from outbox_mail.testing.sink import Behaviour, Sink


@dataclass
class Case:
    """A provider, and a look at what arrived on the other side."""

    provider: Provider
    arrived: Callable[[], Sequence[bytes]]


def _smtp(stack: ExitStack, behaviour: Behaviour, query: str = "") -> Case:
    sink = stack.enter_context(Sink(behaviour))

    def arrived() -> list[bytes]:
        assert sink.violations == []
        return [mail.data for mail in sink.accepted]

    return Case(provider_from_url(sink.url + query), arrived)


def _plain(stack: ExitStack, _folder: Path) -> Case:
    return _smtp(stack, Behaviour())


def _step_by_step(stack: ExitStack, _folder: Path) -> Case:
    return _smtp(stack, Behaviour(extensions=("8BITMIME",)))


def _tls(stack: ExitStack, folder: Path) -> Case:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    return _smtp(stack, Behaviour(tls=context), f"?ca_file={folder}/ca.pem")


def _folder(_stack: ExitStack, folder: Path) -> Case:
    provider = provider_from_url(f"folder:{folder}/maildir")

    def arrived() -> list[bytes]:
        found = mailbox.Maildir(folder / "maildir", create=False)
        return [_stripped(found, key) for key in found.iterkeys()]

    return Case(provider, arrived)


def _stripped(found: mailbox.Maildir, key: str) -> bytes:
    with found.get_file(key) as file:
        content: bytes = file.read()
    while content.startswith((b"Return-Path: ", b"Delivered-To: ")):
        content = content.partition(b"\r\n")[2]
    return content


def _memory(_stack: ExitStack, _folder: Path) -> Case:
    provider = provider_from_url("memory:")
    assert isinstance(provider, MemoryProvider)
    return Case(provider, lambda: [mail.data for mail in provider.sent])


def _console(_stack: ExitStack, _folder: Path) -> Case:
    stream = io.StringIO()

    def arrived() -> list[bytes]:
        # The console shows a readable form; the mails are told apart by their subjects' lines only.
        return [b""] * stream.getvalue().count("\nSubject: A mail\n")

    return Case(ConsoleProvider(stream), arrived)


CASES = {
    "smtp": _plain,
    "smtp, step by step": _step_by_step,
    "smtp, starttls": _tls,
    "folder": _folder,
    "memory": _memory,
    "console": _console,
}


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    with ExitStack() as stack:
        made: Case = request.param(stack, tmp_path)
        yield made
        made.provider.close()


def _assert_all_accepted(result: SendResult, mail: Composed) -> None:
    assert set(result.outcomes) == set(mail.recipients)
    assert {outcome.state for outcome in result.outcomes.values()} == {State.ACCEPTED}


def test_the_name_is_short_and_fit_for_a_metric_label(case: Case) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]{1,30}", case.provider.name)


def test_every_recipient_has_an_outcome(case: Case) -> None:
    mail = composed_mail("a@example.com", "b@example.com", "c@example.com")
    _assert_all_accepted(case.provider.send(mail, Deadline.after(10)), mail)
    assert len(case.arrived()) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"Hello.\r\n",
        b".\r\n..\r\n.hidden\r\n\r\n.\r\n",
        "Günaydın 世界\r\n".encode(),
        bytes(range(14, 256)) + b"\r\n",
        (b"x" * 76 + b"\r\n") * 30_000,
    ],
    ids=["short", "dots", "utf-8", "binary", "2 MB"],
)
def test_the_bytes_arrive_as_they_were_composed(body: bytes, case: Case) -> None:
    mail = composed_mail(body=body)
    case.provider.send(mail, Deadline.after(20))
    [arrived] = case.arrived()
    assert arrived in {mail.data, b""}
    if case.provider.name != "console":
        assert arrived == mail.data


def test_a_deadline_that_has_passed_is_transient_and_nothing_is_sent(case: Case) -> None:
    with pytest.raises(ProviderError) as caught:
        case.provider.send(composed_mail(), Deadline.after(-1))
    assert caught.value.error_class is ErrorClass.TRANSIENT
    assert case.arrived() == []
    case.provider.send(composed_mail(), Deadline.after(10))
    assert len(case.arrived()) == 1


def test_threads_may_send_at_once(case: Case) -> None:
    mails = [composed_mail(f"r{number}@example.com", body=b"x" * 70 + b"\r\n") for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda mail: case.provider.send(mail, Deadline.after(20)), mails))
    for mail, result in zip(mails, results, strict=True):
        _assert_all_accepted(result, mail)
    assert len(case.arrived()) == 40
    if case.provider.name != "console":
        assert set(case.arrived()) == {mail.data for mail in mails}


def test_it_may_be_closed_twice_and_used_again(case: Case) -> None:
    case.provider.send(composed_mail(), Deadline.after(10))
    case.provider.close()
    case.provider.close()
    case.provider.send(composed_mail(), Deadline.after(10))
    assert len(case.arrived()) == 2


def test_the_provider_stores_nothing_of_a_mail_in_its_repr(case: Case) -> None:
    case.provider.send(composed_mail("someone-private@example.com"), Deadline.after(10))
    assert "someone-private" not in repr(case.provider)
