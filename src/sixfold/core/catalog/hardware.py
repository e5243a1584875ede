"""The hardware that work can be hired on, with its price for one hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sixfold import errors
from sixfold.core import money

DEFAULT = "gpu-24gb-b"


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of hardware: `cc` is its compute capability, its price is in micro-dollars an hour."""

    id: str
    label: str
    cc: str
    vram_gb: int
    ram_gb: int
    hour_micros: int


def hour_text(hour_micros: int) -> str:
    """An hour's price as people read it: `$0.35`."""
    return f"${money.format_usd(hour_micros)}"


class Shelf:
    """Every kind of hardware by its id, in the order in which it is listed."""

    def __init__(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        self._kinds = {
            name: Hardware(name, row["label"], row["cc"], row["vram_gb"], row["ram_gb"], _micros(row))
            for name, row in rows.items()
        }

    def __getitem__(self, name: str) -> Hardware:
        """Raises `InvalidInput` for hardware that there is not."""
        try:
            return self._kinds[name]
        except KeyError:
            sentence = f"There is no hardware {name}: it is one of {', '.join(self._kinds)}"
            raise errors.InvalidInput([errors.Problem("hardware", sentence, "enum")]) from None

    def kinds(self) -> tuple[Hardware, ...]:
        """All of it, in order."""
        return tuple(self._kinds.values())


def _micros(row: Mapping[str, Any]) -> int:
    return money.parse_usd(str(row["price_hour"]))
