"""The one tree of errors. Every message says which field or part, what was wrong, and what to do."""

from __future__ import annotations

from enum import StrEnum


class OutboxMailError(Exception):
    """Base of every error that this library raises on purpose."""


class InvalidRequestError(OutboxMailError, ValueError):
    """A request to ``enqueue`` that was refused; nothing was written.

    ``field`` names the argument at fault (``to[2]``, ``headers['X-Id']``, ``send_at``).
    """

    def __init__(self, field: str, problem: str, advice: str) -> None:
        super().__init__(f"{field}: {problem}. {advice}")
        self.field = field
        self.problem = problem
        self.advice = advice


class ConfigurationError(OutboxMailError):
    """Settings that are missing, malformed or contradict each other; raised at start-up, never while sending."""


class EmbeddedError(OutboxMailError):
    """A local PostgreSQL or Redis server could not be found, started or stopped."""


class UsageError(OutboxMailError, ValueError):
    """An argument of an operation is malformed or does not go with another; nothing was done."""

    def __init__(self, field: str, problem: str, advice: str) -> None:
        super().__init__(f"{field}: {problem}. {advice}")
        self.field = field


class MigrationError(OutboxMailError):
    """The migrations could not be run, or the database belongs to a newer version; it is as it was before."""


class DatabaseUnavailableError(OutboxMailError):
    """The database could not be reached, or broke off, for longer than the caller could wait."""


class NotFoundError(OutboxMailError):
    """No row has the given id."""


class RefusedError(OutboxMailError):
    """What a person asked for is not a legal transition for the row as it stands; nothing was changed."""


class ErrorClass(StrEnum):
    """What a failure means for the message; it alone decides what happens next."""

    PERMANENT = "permanent"
    """Trying again can't help: FAILED at once."""
    TRANSIENT = "transient"
    """May pass: an attempt is counted and the message is retried with backoff until its ceiling."""
    OPERATOR = "operator"
    """Not the message's fault (bad key, unverified domain): released without an attempt counted, and alarmed."""
    UNKNOWN = "unknown"
    """The provider may have accepted it. Retried where duplicates are preferred to loss, else FAILED."""


class DeliveryError(OutboxMailError):
    """A message could not be rendered, composed or sent.

    ``code`` is machine-readable (``template_error``, ``smtp_550``), short, and free of personal data; the text is for
    people. ``retry_after_seconds`` is what the provider asked for, when it did.
    """

    error_class = ErrorClass.PERMANENT

    def __init__(
        self,
        code: str,
        message: str,
        *,
        error_class: ErrorClass | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        if error_class is not None:
            self.error_class = error_class


class TemplateError(DeliveryError):
    """The template is unknown, broken, or could not be rendered with these parameters. Always permanent."""


class ComposeError(DeliveryError):
    """Row and rendered template can't be made into a legal mail. Permanent, unless a setting is at fault."""


class AttachmentError(DeliveryError):
    """An attachment is missing, forbidden or too large (permanent), or its store is down (transient)."""


class ProviderError(DeliveryError):
    """The provider refused the whole message, could not be reached, or left the outcome open."""
