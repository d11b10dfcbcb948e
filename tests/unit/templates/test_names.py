"""Names and locales come from rows: only plain ones pass."""

from __future__ import annotations

import pytest

from outbox_mail.mail.templates.names import is_file_name, is_template_name, locale_chain


@pytest.mark.parametrize("name", ["ORDER_CONFIRMED", "order-confirmed.v2", "shop/ORDER_CONFIRMED", "a/b/c", "1"])
def test_plain_names_pass(name: str) -> None:
    assert is_template_name(name)
    assert is_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "x/../y",
        "x/..",
        "a..b",
        "/etc/passwd",
        "//x",
        "x/",
        "x//y",
        ".hidden",
        "x/.hidden",
        "a\0b",
        "a\nb",
        "a\n",
        "a\\b",
        "C:\\x",
        "a b",
        "%2e%2e/x",
        "~root",
        "Ünïcode",
        "x" * 201,
        "a/b/c/d/e/f/g",
        None,
        7,
        ["x"],
        b"x",
    ],
)
def test_everything_else_is_no_name(name: object) -> None:
    assert not is_template_name(name)
    assert not is_file_name(name)


def test_layouts_may_be_included_and_not_asked_for() -> None:
    assert is_file_name("_layouts/base.html")
    assert not is_template_name("_layouts")
    assert not is_template_name("shop/_parts")


@pytest.mark.parametrize(
    ("locale", "chain"),
    [
        (None, ()),
        ("tr", ("tr",)),
        ("tr-TR", ("tr-TR", "tr")),
        ("TR_tr", ("tr-TR", "tr")),
        ("zh-hant-tw", ("zh-Hant-TW", "zh-Hant", "zh")),
        ("es-419", ("es-419", "es")),
        ("", ()),
        ("tr-TR.UTF-8", ()),
        ("../../etc", ()),
        ("tr/../x", ()),
        ("tr\n", ()),
        ("t", ()),
        ("x" * 36, ()),
        ("-", ()),
        ("tr-", ()),
    ],
)
def test_a_locale_is_looked_for_from_special_to_general_and_what_is_none_means_the_default(
    locale: str | None, chain: tuple[str, ...]
) -> None:
    assert locale_chain(locale) == chain
