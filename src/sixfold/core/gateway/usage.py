"""Token usage of calls, and token prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, DecimalException
from typing import Any, cast

import msgspec

from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import LineItem

_MILLION = 1_000_000
# A server that reports more tokens than this is not believed.
_MOST = 1_000_000_000


class Units(msgspec.Struct, frozen=True):
    """Billing units of image and audio models; `image_out` are tokens that `output` includes."""

    images: int = 0
    milliseconds: int = 0
    characters: int = 0
    image_out: int = 0


class TokenUsage(msgspec.Struct, frozen=True):
    """Token counts. `input` and `output` are totals; the other counts are included in them.

    `reported` is False if the numbers are an estimate instead of the server's count.
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


NOTHING = TokenUsage(reported=False)


def parse_token_count(told: Any) -> int | None:
    """Return a token count reported by a server, or None if it is invalid or implausibly large."""
    number = isinstance(told, int | float) and not isinstance(told, bool)
    return int(told) if number and abs(told) <= _MOST else None


def merge_usage(told: TokenUsage | None, expected: TokenUsage) -> TokenUsage:
    """Return the usage of an image, audio or embedding call: what the server reports, else what was
    expected.
    """
    if told is None:
        return msgspec.structs.replace(expected, reported=False)
    units = _filled(told.units, expected.units)
    return msgspec.structs.replace(told if told.reported else expected, units=units, reported=told.reported)


def _filled(told: Units | None, expected: Units | None) -> Units | None:
    """Return the reported units with zeros replaced by the expected ones."""
    if told is None or expected is None:
        return told or expected
    pairs = zip(msgspec.structs.astuple(told), msgspec.structs.astuple(expected), strict=True)
    return Units(*(one or other for one, other in pairs))


@dataclass(frozen=True, slots=True)
class TokenRates:
    """Rates in micro-dollars: per million tokens or characters, per image, per minute of audio.

    A missing special rate falls back to the input or output rate. The `long_…` rates apply to all tokens of a
    request with more than `long_tokens` input tokens. `listed` has the list rates where lower ones are
    applied.
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
    listed: TokenRates | None = None

    def list_price(self, used: TokenUsage) -> int | None:
        """Return the list price of the usage in micro-dollars, or None if it is what is charged."""
        return None if self.listed is None else self.listed.cost(used)

    def cost(self, used: TokenUsage) -> int:
        """Return the cost of the usage in micro-dollars, rounded up."""
        return charges.total(self.lines(used))

    def lines(self, used: TokenUsage) -> tuple[LineItem, ...]:
        """Return the line items of the usage; cached, reasoning and other special tokens have their own
        lines.
        """
        if self.listed is not None:
            return charges.waived(self.listed.lines(used))
        is_long = bool(self.long_tokens) and used.input > self.long_tokens
        rate_in = self.long_input if is_long and self.long_input is not None else self.input
        rate_out = self.long_output if is_long and self.long_output is not None else self.output
        special = used.cached + used.cache_write + used.cache_write_long + used.image_in + used.audio_in
        if not special and not used.audio_out and not used.reasoning and used.units is None:
            plain = LineItem("input_tokens", used.input, rate_in, _MILLION)
            said = LineItem("output_tokens", used.output, rate_out, _MILLION)
            if used.input > 0 < used.output:
                return plain, said
            return tuple([line for line in (plain, said) if line.quantity > 0])
        found = (
            ("input_tokens", used.input - special, rate_in),
            *self._of_input(used, rate_in),
            *self._of_output(used, rate_out),
        )
        lines = [LineItem(unit, count, rate, _MILLION) for unit, count, rate in found if count > 0]
        return tuple(lines if used.units is None else lines + self._of_units(used.units))

    def _of_input(self, used: TokenUsage, usual: int) -> tuple[tuple[str, int, int], ...]:
        long = self.cache_write or usual if self.cache_write_long is None else self.cache_write_long
        return (
            ("cached_tokens", used.cached, usual if self.cached_input is None else self.cached_input),
            ("cache_write_tokens", used.cache_write, usual if self.cache_write is None else self.cache_write),
            ("cache_write_1h_tokens", used.cache_write_long, long),
            ("image_input_tokens", used.image_in, usual if self.image_input is None else self.image_input),
            ("audio_input_tokens", used.audio_in, usual if self.audio_input is None else self.audio_input),
        )

    def _of_output(self, used: TokenUsage, usual: int) -> tuple[tuple[str, int, int], ...]:
        left = max(0, used.output - used.audio_out)
        drawn = min(left, used.units.image_out if used.units is not None else 0)
        reasoning = min(left - drawn, used.reasoning)
        spoken = usual if self.audio_output is None else self.audio_output
        return (
            ("output_tokens", left - drawn - reasoning, usual),
            ("reasoning_tokens", reasoning, usual),
            ("image_output_tokens", drawn, usual if self.image_output is None else self.image_output),
            ("audio_output_tokens", used.audio_out, spoken),
        )

    def _of_units(self, units: Units) -> list[LineItem]:
        found = (
            ("images", units.images, self.per_image, 1),
            ("audio_seconds", units.milliseconds, self.per_minute, charges.MINUTE_MS),
            ("characters", units.characters, self.character, _MILLION),
        )
        return [LineItem(unit, count, rate, per) for unit, count, rate, per in found if count > 0]


FREE = TokenRates(0, 0)
_SUFFIX = "_per_million_usd"
_ALIASES = {"cached": "cached_input", "cached_output": "output"}
_APIECE = {"per_image_usd": "per_image", "per_minute_usd": "per_minute"}
_NAMES = frozenset(field.name for field in fields(TokenRates)) - {"long_tokens", "listed", *_APIECE.values()}
_REMARKS = frozenset({"as_of", "source"})
_MAX_FOUND = 1024


def rates(row: Mapping[str, Any]) -> TokenRates:
    """Parse a row of the price table (`input_per_million_usd`, …); raises `ValueError` with a one-line
    message.
    """
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
    amounts: dict[str, Any] = {"input": 0, "output": 0, **found}
    return TokenRates(**amounts)


def _micros(key: str, value: Any) -> int:
    try:
        amount = Decimal(str(value)) * money.MICROS_PER_USD
    except DecimalException:
        amount = Decimal(-1)
    if not amount.is_finite() or not 0 <= amount < 2**63:
        raise ValueError(f"{key} must be an amount in USD, not {value!r}")
    return int(amount.to_integral_value())


class PriceBook:
    """Prices of targets: the operator's rows first, then the bundled rows, by model.

    With `own_hardware_free`, local model servers cost nothing, and the operator's rows are shown as list
    prices.
    """

    def __init__(
        self,
        bundled: Mapping[str, Mapping[str, Any]],
        own: Mapping[str, Mapping[str, Any]],
        *,
        own_hardware_free: bool = False,
    ) -> None:
        self._bundled = {name: rates(row) for name, row in bundled.items()}
        self._own = {name: _own_rates(name, row) for name, row in own.items()}
        self._free = own_hardware_free
        self._waived = {name: TokenRates(0, 0, listed=row) for name, row in self._own.items()}
        self._found: dict[tuple[str, str], TokenRates | None] = {}

    def find(self, upstream: str, model: str) -> TokenRates | None:
        """Return the operator's rates for `upstream/model` or the model, else the bundled rates of its
        family.
        """
        try:
            return self._found[upstream, model]
        except KeyError:
            own = self.own(upstream, model)
            found = own if own is not None else self._bundled.get(_family(model, self._bundled))
        # Callers may send any number of different names.
        if len(self._found) >= _MAX_FOUND:
            self._found.clear()
        self._found[upstream, model] = found
        return found

    def local(self, upstream: str, model: str) -> TokenRates:
        """Return the rates of a local model server: free unless the operator has set a price."""
        rows = self._waived if self._free else self._own
        return rows.get(f"{upstream}/{model}") or rows.get(model) or FREE

    def own(self, upstream: str, model: str) -> TokenRates | None:
        """Return the operator's rates only."""
        return self._own.get(f"{upstream}/{model}") or self._own.get(model)


def _own_rates(name: str, row: Any) -> TokenRates:
    if not isinstance(row, dict):
        raise ValueError(f'[gateway.prices."{name}"] must be a table, not {row!r}')  # noqa: TRY004 - as above
    try:
        return rates(cast("dict[str, Any]", row))
    except ValueError as error:
        raise ValueError(f'[gateway.prices."{name}"] {error}') from error


def _family(model: str, known: Mapping[str, TokenRates]) -> str:
    """Return the row of a model: its own name, or that name without a date suffix (`…-2025-08-07`,
    `…-latest`).
    """
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
