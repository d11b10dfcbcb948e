"""One line for each record, and nothing in it that must not be there."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from outbox_mail.observe.log_signals import LEVELS, LogSignals, event_name
from outbox_mail.observe.logs import configure_logging
from outbox_mail.observe.redact import redact, redact_text
from outbox_mail.outbox import signals
from outbox_mail.outbox.signals import Signal


@pytest.fixture
def root_logger() -> Iterator[None]:
    """The root logger, put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def raise_with(text: str) -> None:
    raise ValueError(text)


def test_a_record_is_one_line_of_json_with_its_fields(root_logger: None) -> None:
    stream = io.StringIO()
    configure_logging("INFO", "json", stream)
    id_ = uuid4()

    LogSignals()(signals.Failed(id_, "ORDER", "smtp_550", 3))

    (line,) = lines(stream)
    assert line["event"] == "failed"
    assert line["message_id"] == str(id_)
    assert (line["level"], line["error_code"], line["attempts"]) == ("error", "smtp_550", 3)
    assert line["timestamp"].endswith("Z")


def test_records_of_other_libraries_come_the_same_way_without_their_secrets(root_logger: None) -> None:
    stream = io.StringIO()
    configure_logging("INFO", "json", stream)

    logging.getLogger("celery.worker").info("Connected to %s", "redis://:hunter2@127.0.0.1:6379/0")

    (line,) = lines(stream)
    assert line["event"] == "Connected to redis://***@127.0.0.1:6379/0"
    assert line["logger"] == "celery.worker"


def test_a_traceback_is_there_without_addresses_and_without_the_row(root_logger: None) -> None:
    stream = io.StringIO()
    configure_logging("INFO", "json", stream)
    text = "ayse@example.com\nDETAIL:  Failing row contains (1, secret stuff)."
    try:
        raise_with(text)
    except ValueError:
        logging.getLogger("x").exception("it_broke")

    (line,) = lines(stream)
    assert "ValueError: ***@example.com" in line["exception"]
    assert "secret stuff" not in line["exception"]


def test_for_people_control_characters_are_spelled_out(root_logger: None) -> None:
    stream = io.StringIO()
    configure_logging("INFO", "console", stream)

    logging.getLogger("x").warning("seen\n\x1b[31mforged", extra={"reason": "a\r\n\x9b2J"})

    assert stream.getvalue().count("\n") == 1
    assert "\x1b[31m" not in stream.getvalue()
    assert "\x9b" not in stream.getvalue()
    assert "\\x1b[31mforged" in stream.getvalue()


def test_an_object_whose_text_raises_does_not_stop_the_record(root_logger: None) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    stream = io.StringIO()
    configure_logging("INFO", "json", stream)
    logging.getLogger("x").warning("seen", extra={"thing": Broken()})

    (line,) = lines(stream)
    assert line["thing"] == "(Broken, whose text raises RuntimeError)"


@pytest.mark.parametrize("kind", LEVELS, ids=lambda kind: kind.__name__)
def test_every_signal_is_logged_under_its_name(kind: type[Signal], caplog: pytest.LogCaptureFixture) -> None:
    import dataclasses

    made = {"UUID": uuid4(), "str": "x", "int": 2, "float": 0.123456789, "bool": False}
    signal = kind(**{field.name: made[str(field.type)] for field in dataclasses.fields(kind)})
    with caplog.at_level(logging.DEBUG):
        LogSignals()(signal)

    (record,) = caplog.records
    assert record.message == event_name(kind)


def test_no_signal_is_without_a_level() -> None:
    emitted = {kind for kind in vars(signals).values() if isinstance(kind, type) and issubclass(kind, Signal)}
    assert set(LEVELS) == emitted - {Signal}


@pytest.mark.parametrize(
    "signal", [signals.Reaped(0, 0), signals.Retained("SENT", 0, archived=False), signals.FilesRemoved(0, 0)]
)
def test_a_signal_that_tells_of_nothing_is_not_logged(signal: Signal, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        LogSignals()(signal)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://user:p@ss@host/x", "amqp://***@host/x"),
        ("https://token@api.example.com/v1", "https://***@api.example.com/v1"),
        ("password=hunter2 next", "password=*** next"),
        ('{"api_key": "hunter 2"}', '{"api_key": ***}'),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("to Ayşe <ayse.y@xn--rnek-5qa.com>", "to Ayşe <***@xn--rnek-5qa.com>"),
        ("ayşe@örnek.com failed", "***@örnek.com failed"),
        ("celery@worker1 ready", "celery@worker1 ready"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_secrets_and_addresses_are_hidden_by_their_shape(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_secrets_and_personal_values_are_hidden_by_their_name_at_every_depth() -> None:
    assert redact({"a": {"smtp_password": "x", "to": ["a"], "provider_url": "smtp://u:p@h"}, "n": 1}) == {
        "a": {"smtp_password": "***", "to": "***", "provider_url": "smtp://***@h"},
        "n": 1,
    }


def test_what_has_no_end_is_cut() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert "…" in str(redact(deep))
    assert len(redact_text("a" * 10_000_000)) < 30_000
    assert redact(b"secret bytes") == "(12 bytes)"


@pytest.mark.parametrize("text", ["@" * 20_000, "a@" * 10_000, "password=" * 2000, "://" + "a:" * 10_000])
def test_no_text_makes_it_slow(text: str) -> None:
    import time

    started = time.process_time()
    redact_text(text)
    assert time.process_time() - started < 1
