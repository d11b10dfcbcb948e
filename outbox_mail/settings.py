"""Every setting of the service: read once from the environment at the edge, checked, and frozen.

Producers need none of this: ``enqueue`` takes all it needs as arguments.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from outbox_mail.errors import ConfigurationError

ENV_PREFIX = "OUTBOX_MAIL_"

CommaSeparated = Annotated[tuple[str, ...], NoDecode]


def _parsed_redis(url: str) -> None:
    """What the parser would say itself may hold a part of an unescaped password."""
    try:
        parts = urlsplit(url)
        readable = parts.port != 0 and re.fullmatch(r"/?|/[0-9]{1,5}", parts.path)
    except ValueError:
        readable = None
    if not readable:
        raise ValueError(
            "can't be read. Write redis://:password@host:port/0, with special characters in the password "
            "percent-encoded (@ is %40, / is %2F, # is %23)"
        )


class Settings(BaseSettings):
    """Read from ``OUTBOX_MAIL_*`` variables. A value that is malformed or contradicts another stops the start-up.

    Lists are comma-separated. Every duration is in seconds, every size in bytes.
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore", hide_input_in_errors=True)

    database_url: SecretStr = Field(description="PostgreSQL: postgresql://user:password@host:port/name")
    broker_url: SecretStr = Field(
        SecretStr("redis://127.0.0.1:6379/0"), description="Redis, as Celery writes it: redis://:password@host:port/0"
    )
    provider_url: SecretStr = Field(
        SecretStr("console:"),
        description="What carries mail away: smtp://user:password@host:587, smtps://…, console:, folder:///path",
    )
    transaction_pooler: bool = Field(
        False, description="the database is behind a transaction pooler: no LISTEN, no prepared statements"
    )
    database_timeout_seconds: float = Field(
        10, ge=1, description="bound on connecting to and each answer of the database, for workers"
    )
    database_pool_size: int = Field(8, ge=1, le=200, description="connections kept by each process, at most")

    templates: CommaSeparated = Field(("templates",), description="folders of templates; the first that has one wins")
    default_sender: str = Field(
        "Outbox <no-reply@localhost.localdomain>", description="From: where neither row nor template says"
    )
    message_id_domain: str = Field("outbox.localdomain", description="right-hand side of every Message-ID")
    attachment_stores: CommaSeparated = Field(
        (), description="the only places that attachments are read from: file:///folder, s3://bucket/prefix"
    )
    max_attachment_bytes: int = Field(10_000_000, ge=1, description="largest single attachment")
    max_mail_bytes: int = Field(25_000_000, ge=1, description="largest sum of a mail's attachments")

    lease_seconds: float = Field(120, ge=1, description="after this long without a word a claimed row is reaped")
    send_deadline_seconds: float = Field(45, gt=0, description="total bound on one provider call; below the lease")
    reap_interval_seconds: float = Field(15, gt=0, description="how often beat runs the reaper")
    reap_batch_size: int = Field(500, ge=1, le=10_000, description="rows that one statement of the reaper frees")
    max_reaps: int = Field(5, ge=1, description="a message whose lease ran out this often ends FAILED as poison")

    max_attempts: int = Field(5, ge=1, le=100, description="failed attempts after which a message ends FAILED")
    retry_schedule_seconds: Annotated[tuple[float, ...], NoDecode] = Field(
        (30, 120, 600, 1800), description="wait after the first, second, … failed attempt; the last repeats"
    )
    retry_jitter: float = Field(0.2, ge=0, le=1, description="share by which waits are lengthened at random, at most")
    max_retry_after_seconds: float = Field(
        3600, gt=0, description="a provider's wish for a longer pause is cut to this"
    )
    operator_delay_seconds: float = Field(60, gt=0, description="wait after an operator's fault; no attempt is counted")
    countdown_ceiling_seconds: float = Field(
        900, ge=0, description="longer waits stay in the table alone instead of a Celery countdown"
    )
    countdowns_outstanding: int = Field(
        1000, ge=0, description="Celery countdowns that one worker process has out; beyond, the table carries the wait"
    )
    visibility_timeout_seconds: int = Field(
        3600, ge=60, description="after this long Redis hands an unacknowledged task to another worker"
    )

    relay_batch_size: int = Field(500, ge=1, le=10_000, description="rows taken in one round")
    relay_window: int = Field(2000, ge=1, description="ids out at once for each priority")
    relay_ids_per_task: int = Field(10, ge=1, le=100, description="ids packed into one task when there is a backlog")
    relay_poll_seconds: float = Field(1.0, gt=0, description="looks at the table at least this often when idle")
    relay_busy_poll_seconds: float = Field(0.05, gt=0, description="looks again this soon while the window is full")
    relay_backoff_max_seconds: float = Field(15, gt=0, description="longest pause while broker or database is down")
    relay_listen: bool = Field(True, description="wake up by LISTEN; polling stays beneath it")
    relay_database_timeout_seconds: float = Field(
        10, ge=1, description="bound on connecting to and each answer of the database, for the relay"
    )
    republish_seconds: float = Field(
        300, gt=0, description="an id that is out for this long without being claimed is published again"
    )
    broker_timeout_seconds: float = Field(5, gt=0, description="bound on connecting to and each answer of the broker")

    retention_interval_seconds: float = Field(3600, gt=0, description="how often beat runs retention")
    retention_sent_days: float = Field(60, gt=0, le=36_500, description="SENT rows older than this go")
    retention_failed_days: float = Field(90, gt=0, le=36_500, description="FAILED rows older than this go")
    retention_orphan_days: float = Field(
        7, ge=0, le=36_500, description="owned attachment files that no row names by then go; 0: they stay"
    )
    retention_batch_size: int = Field(1000, ge=1, le=50_000, description="rows that one statement removes")
    retention_mode: Literal["delete", "archive"] = Field(
        "delete", description="archive: moved to email_messages_archive"
    )

    worker_concurrency: int = Field(16, ge=1, le=1000, description="sends at once in one worker process")
    metrics_host: str = Field("127.0.0.1", description="address that /metrics listens on")
    relay_metrics_port: int = Field(0, ge=0, le=65535, description="0: no metrics endpoint")
    worker_metrics_port: int = Field(0, ge=0, le=65535, description="0: no metrics endpoint")
    health_stale_seconds: float = Field(60, gt=0, description="a process without progress for longer is unhealthy")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="what is logged, at least")
    log_format: Literal["json", "console"] = Field("json", description="one JSON object a line, or for people")

    @field_validator("templates", "attachment_stores", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("retry_schedule_seconds", mode="before")
    @classmethod
    def _split_numbers(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("retry_schedule_seconds")
    @classmethod
    def _positive(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or any(not 0 < seconds < 30 * 86400 for seconds in value):
            raise ValueError("give at least one wait, each above 0 and below 30 days")
        return value

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, value: SecretStr) -> SecretStr:
        scheme, found, rest = value.get_secret_value().partition("://")
        if not found or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
            raise ValueError("must start with postgresql://")
        return SecretStr(f"postgresql://{rest}")

    @field_validator("broker_url")
    @classmethod
    def _is_redis(cls, value: SecretStr) -> SecretStr:
        if urlsplit(value.get_secret_value()).scheme not in {"redis", "rediss", "sentinel", "redis+socket"}:
            raise ValueError("must start with redis:// or rediss://")
        if re.match(r"rediss?://[^;]*\Z", value.get_secret_value()):
            _parsed_redis(value.get_secret_value())
        return value

    @field_validator("message_id_domain")
    @classmethod
    def _is_domain(cls, value: str) -> str:
        if len(value) > 200 or not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*", value):
            raise ValueError("must be a domain name in ASCII, such as mail.example.com")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.send_deadline_seconds >= self.lease_seconds:
            raise ValueError(
                f"send_deadline_seconds ({self.send_deadline_seconds:g}) must be below lease_seconds "
                f"({self.lease_seconds:g}): else the reaper frees a mail that is still being sent"
            )
        longest = self.countdown_ceiling_seconds * (1 + self.retry_jitter)
        if longest >= self.visibility_timeout_seconds:
            raise ValueError(
                f"countdown_ceiling_seconds with jitter ({longest:g}) must be below visibility_timeout_seconds "
                f"({self.visibility_timeout_seconds}): else Redis hands waiting tasks out again and again"
            )
        if self.relay_busy_poll_seconds > self.relay_poll_seconds:
            raise ValueError("relay_busy_poll_seconds must not be above relay_poll_seconds")
        return self

    @property
    def template_folders(self) -> tuple[Path, ...]:
        """The template folders as paths."""
        return tuple(Path(folder) for folder in self.templates)


def load_settings(**overrides: Any) -> Settings:
    """Read the environment. Raises ``ConfigurationError`` that names each bad variable and never shows a value."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        problems = "; ".join(
            f"{ENV_PREFIX + str(problem['loc'][0]).upper() if problem['loc'] else 'settings'}: "
            f"{problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_input=False, include_url=False)
        )
        raise ConfigurationError(f"{problems}. Mend the environment and start again.") from None
