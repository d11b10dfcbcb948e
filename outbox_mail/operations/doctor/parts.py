"""What the settings name outside the database: provider, templates, attachment stores, broker."""

from __future__ import annotations

from typing import Final

from outbox_mail.errors import AttachmentError, ConfigurationError, TemplateError
from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.providers.registry import provider_from_url, redact_url
from outbox_mail.mail.templates import Templates
from outbox_mail.operations.doctor.broker import ask_broker
from outbox_mail.operations.doctor.check import Check, ok, problem, warning
from outbox_mail.settings import Settings

_SHOWN: Final = 5
_TO_NOBODY: Final = {"console", "memory"}


def provider(settings: Settings) -> Check:
    """Whether the provider is known and its options make sense. Nothing is sent and nobody connected to."""
    url = settings.provider_url.get_secret_value()
    try:
        made = provider_from_url(url)
    except ConfigurationError as error:
        return problem("provider", str(error), "Mend OUTBOX_MAIL_PROVIDER_URL")
    made.close()
    if made.name in _TO_NOBODY:
        return warning(
            "provider", f"{redact_url(url)} sends to nobody", "Set OUTBOX_MAIL_PROVIDER_URL before going live"
        )
    return ok("provider", redact_url(url))


def templates(settings: Settings) -> Check:
    """Whether each template can be read and compiled. That its parameters are not given here is no fault."""
    try:
        library = Templates(settings.template_folders)
    except ConfigurationError as error:
        return problem("templates", str(error), "Mend OUTBOX_MAIL_TEMPLATES, or bring the templates to this machine")
    names = library.names()
    broken = []
    for name in names:
        try:
            library.policy(name)
            library.render(name, {})
        except TemplateError as error:
            if error.code != "parameter_missing":
                broken.append(str(error))
    if not names:
        return warning(
            "templates",
            "there are none",
            "Put ORDER_CONFIRMED/subject.txt and body.html into a folder of OUTBOX_MAIL_TEMPLATES",
        )
    if broken:
        more = f"; and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
        return problem(
            "templates",
            f"{len(broken)} of {len(names)} are broken: {'; '.join(broken[:_SHOWN])}{more}",
            "Mend the files: messages that wait use them at once, FAILED ones after outbox-mail requeue",
        )
    return ok("templates", f"{len(names)} in {', '.join(settings.templates)}")


def attachment_stores(settings: Settings) -> Check:
    """Whether each store can be listed."""
    try:
        stores = Stores(settings.attachment_stores)
    except ConfigurationError as error:
        return problem("attachment stores", str(error), "Mend OUTBOX_MAIL_ATTACHMENT_STORES")
    for store in stores.allowed:
        try:
            next(stores.list_owned(store, 0), None)
        except AttachmentError as error:
            return problem("attachment stores", str(error), "Mails with attachments are retried meanwhile")
    return ok("attachment stores", f"{len(stores.allowed)} can be read" if stores.allowed else "none: no attachments")


def sender(settings: Settings) -> Check:
    """Whether the names of the example were replaced."""
    left = [
        name
        for name, value in (
            ("OUTBOX_MAIL_DEFAULT_SENDER", settings.default_sender),
            ("OUTBOX_MAIL_MESSAGE_ID_DOMAIN", settings.message_id_domain),
        )
        if value.rstrip(">").endswith((".localdomain", "@localhost"))
    ]
    if left:
        return warning(
            "sender", f"{' and '.join(left)} are not set", "Set them to your own domain: receivers distrust others"
        )
    return ok("sender", settings.message_id_domain)


def broker(settings: Settings) -> Check:
    """Whether Redis answers, and does not throw away what it was given when its memory is full."""
    try:
        policy = ask_broker(settings.broker_url.get_secret_value(), settings.broker_timeout_seconds)
    except (OSError, ValueError) as error:
        return problem(
            "broker",
            f"{redact_url(settings.broker_url.get_secret_value())}: {error}",
            "Start Redis or mend OUTBOX_MAIL_BROKER_URL. No mail is lost meanwhile; it waits in the table",
        )
    if policy not in {None, "noeviction"}:
        return warning(
            "broker", f"maxmemory-policy is {policy}", "Set it to noeviction: a full broker must refuse, not forget"
        )
    return ok("broker", "answers" if policy is None else f"answers, {policy}")


CHECKS: Final = (provider, templates, attachment_stores, sender, broker)
