"""From a row and its rendered template to the bytes that go out."""

from outbox_mail.mail.compose.composer import compose
from outbox_mail.mail.compose.content import LoadedAttachment, RenderedContent

__all__ = ["LoadedAttachment", "RenderedContent", "compose"]
