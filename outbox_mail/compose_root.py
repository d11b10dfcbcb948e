"""Builds the parts that deliver mail from settings: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from outbox_mail.errors import ConfigurationError
from outbox_mail.mail.addresses import parse_mailbox
from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.delivery import Delivery, no_countdown
from outbox_mail.mail.message import Message
from outbox_mail.mail.providers.registry import provider_from_url
from outbox_mail.mail.templates import Templates
from outbox_mail.observe.traces import delivery_span
from outbox_mail.outbox.database import Database
from outbox_mail.outbox.retry import RetryPolicy
from outbox_mail.outbox.signals import Signals
from outbox_mail.settings import Settings


def compose_delivery(
    settings: Settings, signals: Signals, *, process: str, reserve_countdown: Callable[[float], bool] = no_countdown
) -> Delivery:
    """Everything that delivering needs, for this process. Nothing is connected yet; make it after any fork.

    Raises ``ConfigurationError`` when the provider is unknown, a template folder is missing, the default sender is no
    mailbox, or settings that only the parts understand can't be used.
    """
    try:
        parse_mailbox(settings.default_sender)
    except ValueError as error:
        raise ConfigurationError(
            f"OUTBOX_MAIL_DEFAULT_SENDER: {error}. Write it as 'Name <local@example.com>'."
        ) from None
    return Delivery(
        database=compose_database(settings, signals, process=process),
        templates=Templates(settings.template_folders),
        stores=compose_stores(settings),
        provider=provider_from_url(settings.provider_url.get_secret_value()),
        retry_policy=compose_retry_policy(settings),
        signals=signals,
        deadline_seconds=settings.send_deadline_seconds,
        default_sender=settings.default_sender,
        message_id_domain=settings.message_id_domain,
        reserve_countdown=reserve_countdown,
        span=_span,
    )


def compose_database(settings: Settings, signals: Signals, *, process: str) -> Database:
    """The process's pool of connections."""
    return Database(
        settings.database_url.get_secret_value(),
        signals,
        process=process,
        pool_size=settings.database_pool_size,
        timeout_seconds=settings.database_timeout_seconds,
        pooler=settings.transaction_pooler,
    )


def compose_stores(settings: Settings) -> Stores:
    """The attachment stores that settings allow."""
    return Stores(
        settings.attachment_stores,
        max_file_bytes=settings.max_attachment_bytes,
        max_mail_bytes=settings.max_mail_bytes,
    )


def compose_retry_policy(settings: Settings) -> RetryPolicy:
    """When failed attempts are tried again."""
    return RetryPolicy(
        max_attempts=settings.max_attempts,
        schedule_seconds=settings.retry_schedule_seconds,
        jitter=settings.retry_jitter,
        operator_delay_seconds=settings.operator_delay_seconds,
        max_retry_after_seconds=settings.max_retry_after_seconds,
    )


def _span(message: Message) -> AbstractContextManager[object]:
    return delivery_span(
        message.trace_context,
        message_id=message.id,
        template=message.template,
        attempt=message.attempt_count + 1,
    )
