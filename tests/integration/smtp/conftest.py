"""Certificates and sinks for the SMTP tests."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from outbox_mail.mail.providers.base import Provider
from outbox_mail.mail.providers.registry import provider_from_url
from outbox_mail.testing.sink import Behaviour, Sink


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Who signs the servers' certificates."""
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The authority's own certificate."""
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="session")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    """A server's context with a certificate for localhost."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.fixture
def behaviour() -> Behaviour:
    """What the test's sink does; change it at will."""
    return Behaviour()


@pytest.fixture
def sink(behaviour: Behaviour) -> Iterator[Sink]:
    """A sink that was spoken to as the RFCs say, or the test fails."""
    with Sink(behaviour) as sink:
        yield sink
    assert sink.violations == []


@pytest.fixture
def connect() -> Iterator[Callable[[str], Provider]]:
    """Makes providers that are closed at the end."""
    made: list[Provider] = []

    def make(url: str) -> Provider:
        made.append(provider_from_url(url))
        return made[-1]

    yield make
    for provider in made:
        provider.close()


@pytest.fixture
def provider(sink: Sink, connect: Callable[[str], Provider]) -> Provider:
    """An SMTP provider that leads to the sink."""
    return connect(sink.url)
