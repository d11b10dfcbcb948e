"""Amounts as people read them."""

from __future__ import annotations

_SIGNS = {"TRY": "₺", "EUR": "€", "USD": "$"}


def money(amount: int, currency: str, locale: str) -> str:
    """``amount`` in the currency's smallest unit, written for ``locale``: ₺1.249,90 or €1,249.90."""
    text = f"{amount / 100:,.2f}"
    if locale.partition("-")[0] in {"tr", "de"}:
        text = text.translate(str.maketrans(",.", ".,"))
    return f"{_SIGNS.get(currency, currency + ' ')}{text}"
