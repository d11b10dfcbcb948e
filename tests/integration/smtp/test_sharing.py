"""One provider, many threads, and processes that fork."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from outbox_mail.errors import ProviderError
from outbox_mail.mail.providers.base import Deadline, Provider
from outbox_mail.testing.mails import composed_mail
from outbox_mail.testing.sink import Sink


def test_threads_that_send_at_once_have_a_connection_each_and_no_more(provider: Provider, sink: Sink) -> None:
    sink.behaviour.latency_seconds = 0.01
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: provider.send(composed_mail(), Deadline.after(20)), range(80)))
    assert len(results) == len({mail.message_id for mail in sink.accepted}) == 80
    assert 1 < sink.connections <= 8


def test_threads_that_come_and_go_leave_no_connection_behind(provider: Provider, sink: Sink) -> None:
    for _ in range(10):
        thread = threading.Thread(target=lambda: provider.send(composed_mail(), Deadline.after(5)))
        thread.start()
        thread.join()
    assert len(sink.accepted) == 10
    assert sink.connections == 1


def test_a_forked_child_opens_its_own_connection_and_leaves_the_parents_alone(provider: Provider, sink: Sink) -> None:
    provider.send(composed_mail(), Deadline.after(5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            provider.send(composed_mail("child@example.com"), Deadline.after(10))
            provider.close()
        except BaseException:  # noqa: BLE001 - the child must not run pytest's code
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sink.connections == 2
    provider.send(composed_mail("parent@example.com"), Deadline.after(5))
    assert [mail.recipients for mail in sink.accepted[1:]] == [("child@example.com",), ("parent@example.com",)]
    assert sink.connections == 2


def test_close_leaves_alone_what_is_being_sent(
    provider: Provider, sink: Sink, connect: Callable[[str], Provider]
) -> None:
    sink.behaviour.latency_seconds = 0.3
    failed: list[ProviderError] = []

    def send() -> None:
        try:
            provider.send(composed_mail(), Deadline.after(5))
        except ProviderError as error:
            failed.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while not sink.connections:
        thread.join(0.005)
    provider.close()
    thread.join()
    assert failed == []
    assert len(sink.accepted) == 1
