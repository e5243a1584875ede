"""`Accept`: which of several types a client would rather have."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_RANGES = 64
_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


@dataclass(frozen=True, slots=True)
class _Range:
    kind: str
    quality: float
    order: int

    def fit(self, offered: str) -> int:
        """2 for the very type, 1 for its family, 0 for anything, -1 when it does not match."""
        if self.kind == offered:
            return 2
        if self.kind == offered.partition("/")[0] + "/*":
            return 1
        return 0 if self.kind == "*/*" else -1


def best(header: str | None, offered: tuple[str, ...]) -> str | None:
    """The offered type that a client likes best; the first where it does not care, None where none will do.

    At equal quality a type that is named beats one that only a wildcard takes in.
    """
    ranges = _parse(header or "*/*")
    liked: list[tuple[float, int, int, int]] = []
    for position, kind in enumerate(offered):
        fits = [(found.fit(kind), -found.order, found.quality) for found in ranges if found.fit(kind) >= 0]
        if not fits:
            continue
        fit, order, quality = max(fits)
        if quality > 0:
            liked.append((quality, fit, order if fit == 2 else -_MAX_RANGES, -position))
    return offered[-max(liked)[3]] if liked else None


def _parse(header: str) -> list[_Range]:
    found: list[_Range] = []
    for order, item in enumerate(header.split(",")[:_MAX_RANGES]):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if "/" in kind:
            found.append(_Range(_ALIASES.get(kind, kind), _quality(parameters), order))
    return found or [_Range("*/*", 1.0, 0)]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0
