"""What a call took, in tokens, and what tokens cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from sixfold.core import money

_MILLION = 1_000_000
_MINUTE_MS = 60_000
_MOST = 1_000_000_000  # tokens that any call has taken


class Units(msgspec.Struct, frozen=True):
    """What pictures and sound are sold by beside tokens; `image_out` are tokens, counted in `output`."""

    images: int = 0
    milliseconds: int = 0
    characters: int = 0
    image_out: int = 0


class Usage(msgspec.Struct, frozen=True):
    """Tokens. `input` and `output` count all; the others say how many of them were cached, pictures, sound.

    `reported` is False where no server counted and the numbers are an estimate.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    image_in: int = 0
    audio_in: int = 0
    audio_out: int = 0
    reasoning: int = 0
    reported: bool = True
    units: Units | None = None


NOTHING = Usage(reported=False)


def tokens(told: Any) -> int | None:
    """A number of tokens as a server tells it; None for what is none, or more than any call can take."""
    number = isinstance(told, int | float) and not isinstance(told, bool)
    return int(told) if number and abs(told) <= _MOST else None


def settled(told: Usage | None, expected: Usage) -> Usage:
    """What a call for pictures, sound or vectors used: as its server says, else as was expected of it."""
    if told is None:
        return msgspec.structs.replace(expected, reported=False)
    units = _filled(told.units, expected.units)
    return msgspec.structs.replace(told if told.reported else expected, units=units, reported=told.reported)


def _filled(told: Units | None, expected: Units | None) -> Units | None:
    """What a server told, and where it told nothing what was expected."""
    if told is None or expected is None:
        return told or expected
    pairs = zip(msgspec.structs.astuple(told), msgspec.structs.astuple(expected), strict=True)
    return Units(*(one or other for one, other in pairs))


@dataclass(frozen=True, slots=True)
class Rates:
    """Micro-dollars per million tokens or characters, per picture, per minute of sound.

    What is absent costs what its kind costs. `long_…` holds for all tokens of a request that has more than
    `long_tokens` of input.
    """

    input: int
    output: int
    cached_input: int | None = None
    cache_write: int | None = None
    cache_write_long: int | None = None
    image_input: int | None = None
    audio_input: int | None = None
    audio_output: int | None = None
    image_output: int | None = None
    character: int = 0
    per_image: int = 0
    per_minute: int = 0
    long_input: int | None = None
    long_output: int | None = None
    long_tokens: int = 0

    def cost(self, used: Usage) -> int:
        """Micro-dollars, rounded up."""
        is_long = bool(self.long_tokens) and used.input > self.long_tokens
        rate_in = self.long_input if is_long and self.long_input is not None else self.input
        rate_out = self.long_output if is_long and self.long_output is not None else self.output
        special = used.cached + used.cache_write + used.cache_write_long + used.image_in + used.audio_in
        if special or used.audio_out or used.input < 0 or used.output < 0:
            total = max(0, used.input - special) * rate_in + max(0, used.output - used.audio_out) * rate_out
            total += self._of_special(used, rate_in, rate_out)
        else:
            total = used.input * rate_in + used.output * rate_out
        if used.units is not None:
            total += self._of_units(used.units, rate_out)
        return -(-total // _MILLION)

    def _of_units(self, units: Units, rate_out: int) -> int:
        drawn = 0 if self.image_output is None else units.image_out * (self.image_output - rate_out)
        apiece = units.images * self.per_image * _MILLION
        timed = -(-units.milliseconds * self.per_minute * _MILLION // _MINUTE_MS)
        return drawn + apiece + timed + units.characters * self.character

    def _of_special(self, used: Usage, rate_in: int, rate_out: int) -> int:
        total = 0
        for tokens, rate, usual in (
            (used.cached, self.cached_input, rate_in),
            (used.cache_write, self.cache_write, rate_in),
            (used.cache_write_long, self.cache_write_long, self.cache_write or rate_in),
            (used.image_in, self.image_input, rate_in),
            (used.audio_in, self.audio_input, rate_in),
            (used.audio_out, self.audio_output, rate_out),
        ):
            total += tokens * (usual if rate is None else rate)
        return total


FREE = Rates(0, 0)
_SUFFIX = "_per_million_usd"
_ALIASES = {"cached": "cached_input", "cached_output": "output"}
_APIECE = {"per_image_usd": "per_image", "per_minute_usd": "per_minute"}
_NAMES = frozenset(field.name for field in fields(Rates)) - {"long_tokens", *_APIECE.values()}
_REMARKS = frozenset({"as_of", "source"})
_MAX_FOUND = 1024


def rates(row: Mapping[str, Any]) -> Rates:
    """A row of the price table (`input_per_million_usd`, …); raises `ValueError` with one sentence."""
    found: dict[str, int] = {}
    for key, value in row.items():
        if key in _REMARKS:
            continue
        name = key.removesuffix(_SUFFIX)
        name = _ALIASES.get(name, name)
        if key == "long_tokens" and isinstance(value, int):
            found[key] = value
        elif key in _APIECE:
            found[_APIECE[key]] = _micros(key, value)
        elif key.endswith(_SUFFIX) and name in _NAMES:
            found[name] = _micros(key, value)
        else:
            raise ValueError(f"{key} is not known in a price; input{_SUFFIX} and output{_SUFFIX} are")
    if not found.keys() & {"input", "character", *_APIECE.values()}:
        raise ValueError(f"a price needs input{_SUFFIX}")
    return Rates(**{"input": 0, "output": 0, **found})


def _micros(key: str, value: Any) -> int:
    try:
        amount = Decimal(str(value)) * money.MICROS_PER_USD
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{key} must be an amount in USD, not {value!r}")
    return int(amount.to_integral_value())


class PriceBook:
    """What each target costs: the operator's rows, then the bundled ones, by model."""

    def __init__(
        self, bundled: Mapping[str, Mapping[str, Any]], own: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._bundled = {name: rates(row) for name, row in bundled.items()}
        self._own = {name: rates(row) for name, row in own.items()}
        self._found: dict[tuple[str, str], Rates | None] = {}

    def find(self, upstream: str, model: str) -> Rates | None:
        """The operator's row for `upstream/model` or for the model, else the bundled one of its family."""
        try:
            return self._found[upstream, model]
        except KeyError:
            own = self.own(upstream, model)
            found = own if own is not None else self._bundled.get(_family(model, self._bundled))
        if len(self._found) >= _MAX_FOUND:  # whoever asks may make up names
            self._found.clear()
        self._found[upstream, model] = found
        return found

    def own(self, upstream: str, model: str) -> Rates | None:
        """The operator's own row alone."""
        return self._own.get(f"{upstream}/{model}") or self._own.get(model)


def _family(model: str, known: Mapping[str, Rates]) -> str:
    """The row of a model: its own, or the one that it continues with a date (`…-2025-08-07`, `…-latest`)."""
    bare = model.rpartition("/")[2]
    if bare in known:
        return bare
    for name in sorted(known, key=len, reverse=True):
        rest = bare.removeprefix(name)
        dated = rest.removeprefix("-").replace("-", "")
        if (
            rest != bare
            and rest.startswith("-")
            and (dated == "latest" or (dated.isdigit() and len(dated) >= 4))
        ):
            return name
    return ""
