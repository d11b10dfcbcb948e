"""Building a relay from settings: the one place that knows all its parts."""

from __future__ import annotations

from celery import Celery

from outbox_mail.mail.outbox import MAIL
from outbox_mail.mail.providers.registry import provider_from_url
from outbox_mail.outbox.signals import Signals
from outbox_mail.settings import Settings
from relay.database import Sessions
from relay.loop import Relay
from relay.publisher import Publisher

# Connecting, logging in, and the answer each have the broker's timeout; a session that is silent for longer than all
# of them in the middle of a round belongs to a relay that was stopped, and its rows are given to another.
_BROKER_STEPS = 5


def compose(settings: Settings, signals: Signals) -> Relay:
    """A relay that is ready to run; nothing is connected yet.

    Broker settings come from ``celeryconfig.py``. Raises ``ConfigurationError`` when these, or the provider's URL,
    can't be used.
    """
    app = Celery("relay", set_as_current=False)
    app.config_from_object("celeryconfig")
    return Relay(
        settings,
        MAIL,
        sessions(settings),
        Publisher(app, timeout_seconds=settings.broker_timeout_seconds),
        signals,
        provider=provider_from_url(settings.provider_url.get_secret_value()).name,
    )


def sessions(settings: Settings) -> Sessions:
    """How this relay's sessions are opened."""
    return Sessions(
        settings.database_url.get_secret_value(),
        timeout_seconds=settings.relay_database_timeout_seconds,
        idle_in_transaction_seconds=_BROKER_STEPS * settings.broker_timeout_seconds
        + settings.relay_database_timeout_seconds,
        pooler=settings.transaction_pooler,
    )
