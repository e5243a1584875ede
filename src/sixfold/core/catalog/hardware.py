"""The hardware that models can run on, with prices per hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import money

DEFAULT = "gpu-24gb-b"


class Hardware(msgspec.Struct, frozen=True):
    """A kind of hardware.

    `cc` is its CUDA compute capability, and `hour_micros` its price per hour in micro-dollars.
    """

    id: str
    label: str
    cc: str
    vram_gb: int
    ram_gb: int
    hour_micros: int


def hour_text(hour_micros: int) -> str:
    """Return the price of an hour as a string, such as `$0.35`."""
    return f"${money.format_usd(hour_micros)}"


class HardwareCatalog:
    """All kinds of hardware by id, in listing order."""

    def __init__(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        self._kinds = {
            name: Hardware(name, row["label"], row["cc"], row["vram_gb"], row["ram_gb"], _micros(row))
            for name, row in rows.items()
        }

    def __getitem__(self, name: str) -> Hardware:
        """Return the hardware with this id; raises `InvalidInput`."""
        try:
            return self._kinds[name]
        except KeyError:
            message = f"hardware must be one of {', '.join(self._kinds)} (got {name})"
            raise errors.InvalidInput([errors.Problem("hardware", message, "enum")]) from None

    def kinds(self) -> tuple[Hardware, ...]:
        return tuple(self._kinds.values())


def _micros(row: Mapping[str, Any]) -> int:
    return money.parse_usd(str(row["price_hour"]))
