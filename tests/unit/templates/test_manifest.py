"""``template.toml``: what it may say, and that a mistake in it is named."""

from __future__ import annotations

import pytest

from outbox_mail.mail.templates.manifest import Manifest, parse_manifest


def test_an_empty_manifest_leaves_everything_to_the_service() -> None:
    assert parse_manifest("") == Manifest(False, None, None, (), None)


def test_every_key_is_read() -> None:
    text = """
    delivery = "at_most_once"
    max_attempts = 3
    sender = "Shop <shop@example.com>"
    reply_to = ["help@example.com", "Team <team@example.com>"]
    schema_version = 2
    """
    assert parse_manifest(text) == Manifest(
        True, 3, "Shop <shop@example.com>", ("help@example.com", "Team <team@example.com>"), 2
    )


def test_at_least_once_and_one_reply_address_can_be_written_out() -> None:
    manifest = parse_manifest('delivery = "at_least_once"\nreply_to = "help@example.com"')
    assert not manifest.at_most_once
    assert manifest.reply_to == ("help@example.com",)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("maxattempts = 3", "maxattempts"),
        ("[delivery]\nmode = 1", "delivery"),
        ('delivery = "once"', "delivery"),
        ("delivery = []", "delivery"),
        ("max_attempts = 0", "max_attempts"),
        ("max_attempts = true", "max_attempts"),
        ("max_attempts = 2.5", "max_attempts"),
        ("max_attempts = 1000000", "max_attempts"),
        ('schema_version = "2"', "schema_version"),
        ('sender = "nobody"', "sender"),
        ('sender = "a@b.c\\r\\nBcc: x@y.z"', "sender"),
        ("sender = 7", "sender"),
        ('reply_to = ["a@b.c", 7]', "reply_to"),
        ("\nmax_attempts == 1", "line 2"),
    ],
)
def test_a_mistake_is_refused_and_its_key_or_line_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_manifest(text)
