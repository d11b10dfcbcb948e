"""The options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON value on standard output, for scripts.")]
Template = Annotated[str | None, typer.Option(help="Only this template.")]
Tag = Annotated[str | None, typer.Option(help="Only with this tag.")]
To = Annotated[str | None, typer.Option("--to", help="Only to this address (to, cc or bcc): ayse@example.com.")]
ErrorCode = Annotated[str | None, typer.Option(help="Only with this error code: smtp_550, expired, …")]
OrderingKey = Annotated[str | None, typer.Option(help="Only with this ordering key.")]
Entity = Annotated[str | None, typer.Option(help="Only of this business entity: order:42.")]
Since = Annotated[
    str | None, typer.Option(help="Created since: 15m, 2h, 7d ago, or 2026-07-01T09:30 (UTC unless it names a zone).")
]
Until = Annotated[str | None, typer.Option(help="Created before; written like --since.")]
By = Annotated[str | None, typer.Option(help="Who does it; kept with the message. Default: your account's name.")]
Reason = Annotated[str, typer.Option(help="Why; kept with the message.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
