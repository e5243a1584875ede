"""The prices of a model by token and unit, and their parsing from a row of the price table."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Any

import msgspec

from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import LineItem
from sixfold.core.gateway.pricing.usage import TokenUsage, Units

_MILLION = 1_000_000


class TokenRates(msgspec.Struct, frozen=True):
    """Rates in micro-dollars.

    Rates are per million tokens or characters, per image, per minute of audio, per search, or per use of a
    provider's tool.

    A missing special rate falls back to the input or output rate. The `long_…` rates apply to all tokens of a
    request with more than `long_tokens` input tokens. `list_rates` are set if lower rates are applied. If
    `as_billed` is set, a call costs the amount that the provider states, if any.
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
    per_search: int = 0
    per_web_search: int | None = None
    per_file_search: int | None = None
    per_code_container: int | None = None
    per_preview_search: int | None = None
    per_code_execution: int | None = None
    long_input: int | None = None
    long_output: int | None = None
    long_tokens: int = 0
    list_rates: TokenRates | None = None
    as_billed: bool = False
    # The whole price of a call, of a service that is not charged by tokens.
    per_call: int | None = None
    # The least price of a call.
    minimum: int = 0

    def list_price(self, usage: TokenUsage) -> int | None:
        """Return the list price of the usage in micro-dollars, or None if it equals the charge."""
        return None if self.list_rates is None else self.list_rates.cost(usage)

    def cost(self, usage: TokenUsage) -> int:
        """Return the cost of the usage in micro-dollars, rounded up."""
        return charges.total(self.lines(usage))

    def lines(self, usage: TokenUsage) -> tuple[LineItem, ...]:
        """Return the line items of the usage.

        Cached, reasoning and other special tokens have separate lines.
        """
        if self.list_rates is not None:
            return charges.waive(self.list_rates.lines(usage))
        if self.per_call is not None:
            return (LineItem("request", 1, self.per_call),)
        if self.minimum:
            items = msgspec.structs.replace(self, minimum=0).lines(usage)
            return items if charges.total(items) > self.minimum else (LineItem("request", 1, self.minimum),)
        # The bill of a response that was delivered in part is for the whole of it.
        if self.as_billed and usage.billed_micros and usage.reported:
            return (LineItem("billed_usd", usage.billed_micros, money.MICROS_PER_USD, money.MICROS_PER_USD),)
        is_long = bool(self.long_tokens) and usage.input > self.long_tokens
        input_rate = self.long_input if is_long and self.long_input is not None else self.input
        output_rate = self.long_output if is_long and self.long_output is not None else self.output
        special = usage.cached + usage.cache_write + usage.cache_write_long + usage.image_in + usage.audio_in
        if not special and not usage.audio_out and not usage.reasoning and usage.units is None:
            input_line = LineItem("input_tokens", usage.input, input_rate, _MILLION)
            output_line = LineItem("output_tokens", usage.output, output_rate, _MILLION)
            if usage.input > 0 < usage.output:
                return input_line, output_line
            return tuple([line for line in (input_line, output_line) if line.quantity > 0])
        token_counts = (
            ("input_tokens", usage.input - special, input_rate),
            *self._input_counts(usage, input_rate),
            *self._output_counts(usage, output_rate),
        )
        lines = [LineItem(unit, count, rate, _MILLION) for unit, count, rate in token_counts if count > 0]
        return tuple(lines if usage.units is None else lines + self._unit_lines(usage.units))

    def _input_counts(self, usage: TokenUsage, default: int) -> tuple[tuple[str, int, int], ...]:
        long_write_rate = (
            self.cache_write or default if self.cache_write_long is None else self.cache_write_long
        )
        return (
            ("cached_tokens", usage.cached, default if self.cached_input is None else self.cached_input),
            (
                "cache_write_tokens",
                usage.cache_write,
                default if self.cache_write is None else self.cache_write,
            ),
            ("cache_write_1h_tokens", usage.cache_write_long, long_write_rate),
            ("image_input_tokens", usage.image_in, default if self.image_input is None else self.image_input),
            ("audio_input_tokens", usage.audio_in, default if self.audio_input is None else self.audio_input),
        )

    def _output_counts(self, usage: TokenUsage, default: int) -> tuple[tuple[str, int, int], ...]:
        remaining = max(0, usage.output - usage.audio_out)
        image_tokens = min(remaining, usage.units.image_out if usage.units is not None else 0)
        reasoning = min(remaining - image_tokens, usage.reasoning)
        audio_rate = default if self.audio_output is None else self.audio_output
        return (
            ("output_tokens", remaining - image_tokens - reasoning, default),
            ("reasoning_tokens", reasoning, default),
            (
                "image_output_tokens",
                image_tokens,
                default if self.image_output is None else self.image_output,
            ),
            ("audio_output_tokens", usage.audio_out, audio_rate),
        )

    def _unit_lines(self, units: Units) -> list[LineItem]:
        items = (
            ("images", units.images, self.per_image, 1),
            ("audio_seconds", units.milliseconds, self.per_minute, charges.MINUTE_MS),
            ("characters", units.characters, self.character, _MILLION),
            ("searches", units.searches, self.per_search, 1),
            ("web_searches", units.web_searches, self.per_web_search or 0, 1),
            ("file_searches", units.file_searches, self.per_file_search or 0, 1),
            ("code_containers", units.code_containers, self.per_code_container or 0, 1),
            ("preview_searches", units.preview_searches, self.per_preview_search or 0, 1),
            ("code_executions", units.code_executions, self.per_code_execution or 0, 1),
        )
        return [LineItem(unit, count, rate, per) for unit, count, rate, per in items if count > 0]


FREE = TokenRates(0, 0)
_SUFFIX = "_per_million_usd"
_ALIASES = {"cached": "cached_input", "cached_output": "output"}
_MODEL_PRICES = {"per_image_usd": "per_image", "per_minute_usd": "per_minute", "per_search_usd": "per_search"}
TOOL_PRICES = {
    "per_web_search_usd": "per_web_search",
    "per_file_search_usd": "per_file_search",
    "per_code_container_usd": "per_code_container",
    "per_preview_search_usd": "per_preview_search",
    "per_code_execution_usd": "per_code_execution",
}
_UNIT_PRICES = _MODEL_PRICES | TOOL_PRICES
_NAMES = frozenset(TokenRates.__struct_fields__) - {
    "long_tokens",
    "list_rates",
    "as_billed",
    "per_call",
    "minimum",
    *_UNIT_PRICES.values(),
}
_COMMENT_FIELDS = frozenset({"as_of", "source"})


def rates(row: Mapping[str, Any]) -> TokenRates:
    """Parse a row of the price table, such as `input_per_million_usd`.

    Raises `ValueError` with a one-line message.
    """
    amounts: dict[str, int] = {}
    for key, value in row.items():
        if key in _COMMENT_FIELDS:
            continue
        name = key.removesuffix(_SUFFIX)
        name = _ALIASES.get(name, name)
        if key == "long_tokens" and str(value).isdecimal():
            amounts[key] = int(value)
        elif key in _UNIT_PRICES:
            amounts[_UNIT_PRICES[key]] = micros(key, value)
        elif key.endswith(_SUFFIX) and name in _NAMES:
            amounts[name] = micros(key, value)
        else:
            raise ValueError(
                f"{key} is not a price setting: use, for example, input{_SUFFIX} and output{_SUFFIX}"
            )
    if not amounts.keys() & {"input", "character", *_MODEL_PRICES.values()}:
        raise ValueError(f"a price must set input{_SUFFIX}")
    all_amounts: dict[str, Any] = {"input": 0, "output": 0, **amounts}
    return TokenRates(**all_amounts)


def micros(key: str, value: Any) -> int:
    try:
        amount = Decimal(str(value)) * money.MICROS_PER_USD
    except DecimalException:
        amount = Decimal(-1)
    if not amount.is_finite() or not 0 <= amount < 2**63:
        raise ValueError(f"{key} must be an amount in USD (got {value!r})")
    # A price that rounds to 0 would make the model free.
    return int(amount.to_integral_value()) or int(amount > 0)
