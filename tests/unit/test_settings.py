"""Settings that can't be used are refused when they are read."""

from __future__ import annotations

import pytest

from outbox_mail.errors import ConfigurationError
from outbox_mail.settings import load_settings


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2@127.0.0.1:notaport/0",
        "redis://:hunter2@127.0.0.1:99999/0",
        "rediss://:hunter2@127.0.0.1:6379/first",
        "redis://:hunter2/x@127.0.0.1:6379/0",
        "redis://[:hunter2@127.0.0.1/0",
    ],
)
def test_a_broker_url_that_cannot_be_read_is_refused_without_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_MAIL_DATABASE_URL", "postgresql://u@127.0.0.1/x")
    monkeypatch.setenv("OUTBOX_MAIL_BROKER_URL", url)
    with pytest.raises(ConfigurationError, match="OUTBOX_MAIL_BROKER_URL") as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1",
        "redis://:p@[::1]:6379/1?health_check_interval=5",
        "sentinel://a:26379;sentinel://b:26379",
        "redis+socket:///run/redis.sock",
    ],
)
def test_every_form_of_broker_url_that_celery_reads_is_taken(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_MAIL_DATABASE_URL", "postgresql://u@127.0.0.1/x")
    monkeypatch.setenv("OUTBOX_MAIL_BROKER_URL", url)
    assert load_settings().broker_url.get_secret_value() == url
