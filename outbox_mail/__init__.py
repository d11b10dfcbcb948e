"""E-mail that must not be lost: a row in your transaction becomes an e-mail in an inbox."""

from outbox_mail.errors import InvalidRequestError, OutboxMailError
from outbox_mail.mail.attachments.reference import Attachment
from outbox_mail.mail.enqueue import aenqueue, aenqueue_many, enqueue, enqueue_many
from outbox_mail.mail.request import MessageRequest
from outbox_mail.names import Priority

__all__ = [
    "Attachment",
    "InvalidRequestError",
    "MessageRequest",
    "OutboxMailError",
    "Priority",
    "aenqueue",
    "aenqueue_many",
    "enqueue",
    "enqueue_many",
]
