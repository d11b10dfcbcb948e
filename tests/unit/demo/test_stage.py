"""What the demo sets is what the service reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo.stage import service_environment
from outbox_mail.settings import ENV_PREFIX, Settings, load_settings


def test_every_setting_of_the_demo_exists_and_all_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = service_environment(
        "postgresql://a:b@127.0.0.1/c", "redis://:p@127.0.0.1:1/0", "smtp://127.0.0.1:25?tls=none", Path("/files")
    )
    for name, value in environment.items():
        assert name.removeprefix(ENV_PREFIX).lower() in Settings.model_fields
        monkeypatch.setenv(name, value)
    assert load_settings().lease_seconds < Settings.model_fields["lease_seconds"].default
