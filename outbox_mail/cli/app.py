"""The commands, gathered."""

from __future__ import annotations

import typer

from outbox_mail.cli import acting, keeping, looking

app = typer.Typer(
    name="outbox-mail",
    help=(
        "Look at the outbox, act on messages, keep the service running.\n\n"
        "Reads OUTBOX_MAIL_DATABASE_URL; doctor, health and preview read the other OUTBOX_MAIL_ settings, too. "
        "Exit codes: 0 all is well; 1 something is not as it should be (not found, refused, unhealthy, database down); "
        "2 the arguments or settings can't be used. With --json standard output is one JSON value and nothing else."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

app.command()(looking.status)
app.command("list")(looking.list_)
app.command()(looking.show)
app.command()(acting.requeue)
app.command()(acting.cancel)
app.command()(acting.discard)
app.command()(acting.pause)
app.command()(acting.resume)
app.command()(keeping.doctor)
app.command()(keeping.health)
app.command()(keeping.migrate)
app.command()(keeping.preview)
app.command()(keeping.version)
