"""The operator's `[prices]` setting: validation, and merging into the bundled prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sixfold.core import money

_FIELDS = frozenset({"usd", "request_usd"})


class InvalidPrice(ValueError):
    """An invalid row of `[prices]`; the message names the row, the field and what would be valid."""


def overlaid(rows: Mapping[str, Mapping[str, Any]], own: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the bundled rows with the operator's own merged in by variant; raises `InvalidPrice`."""
    found = {name: dict(row) for name, row in rows.items()}
    for name, row in own.items():
        if name not in found:
            raise InvalidPrice(f"[prices] has no row {name!r}; its rows are {', '.join(found)}")
        if not isinstance(row, dict):
            raise InvalidPrice(f'[prices.{name}] must be a table such as {{ usd = "0.05" }}, not {row!r}')
        found[name] |= _own_row(name, found[name], cast("dict[str, Any]", row))
    return found


def _own_row(name: str, bundled: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    where, before = f"[prices.{name}]", bundled["usd"]
    if unknown := sorted(set(row) - _FIELDS):
        raise InvalidPrice(f"{where} has an unknown field {unknown[0]!r}; usd and request_usd are known")
    checked: dict[str, Any] = {}
    for field, value in row.items():
        if not isinstance(value, dict):
            _check_amount(f"{where} {field}", value)
            checked[field] = value
            continue
        if field != "usd" or not isinstance(before, dict):
            raise InvalidPrice(f"{where} {field} must be one amount in USD, not a table")
        known = cast("dict[str, Any]", before)
        variants = cast("dict[str, Any]", value)
        for variant, amount in variants.items():
            if variant not in known:
                raise InvalidPrice(f"{where} usd has no variant {variant!r}; they are {', '.join(known)}")
            _check_amount(f"{where} usd.{variant}", amount)
        checked[field] = {**known, **variants}
    return checked


def _check_amount(where: str, value: Any) -> None:
    try:
        micros = -1 if isinstance(value, bool) else money.parse_usd(str(value))
    except ValueError:
        micros = -1
    if micros < 0:
        raise InvalidPrice(f'{where} must be USD with at most six decimals, such as "0.05", not {value!r}')
