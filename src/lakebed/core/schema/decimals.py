"""Decimals as partition transforms see them. Nothing but the standard library is used here: executors get this module by value."""

from __future__ import annotations

from decimal import Context, Decimal

_WIDE = Context(prec=80)  # the default context would round a 38-digit decimal


def unscaled_of(value: Decimal, scale: int) -> int:
    return int(value.scaleb(scale, _WIDE).to_integral_value(context=_WIDE))


def truncate_decimal(value: Decimal, width: int, scale: int) -> Decimal:
    """`width` counts units of the last digit."""
    unscaled = unscaled_of(value, scale)
    return Decimal(unscaled - unscaled % width).scaleb(-scale, _WIDE)


def decimal_text(value: Decimal, scale: int) -> str:
    """With exactly `scale` digits behind the point."""
    return f"{value.quantize(Decimal(1).scaleb(-scale), context=_WIDE):f}"
