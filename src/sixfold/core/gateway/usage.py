"""Token usage of calls, and token prices."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from decimal import Decimal, DecimalException
from typing import Any, Protocol, cast

import msgspec
from msgspec.structs import replace

from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import LineItem

_MILLION = 1_000_000
# A report of more tokens than this is ignored.
_MAX_TOKENS = 1_000_000_000
_MAX_USD = 1_000
# Of speech that is transcribed, with the times of captions.
_MAX_CHARS_PER_SECOND = 60


class Units(msgspec.Struct, frozen=True):
    """Billing units other than tokens; `image_out` are tokens that `output` includes."""

    images: int = 0
    milliseconds: int = 0
    characters: int = 0
    image_out: int = 0
    searches: int = 0
    web_searches: int = 0
    file_searches: int = 0
    code_containers: int = 0
    preview_searches: int = 0
    code_executions: int = 0


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
    # The charge for the call that the provider reports, in micro-dollars.
    billed_micros: int = 0


NOTHING = TokenUsage(reported=False)


def parse_token_count(value: Any) -> int | None:
    """Return a token count reported by a server, or None if it is invalid, negative or implausibly large."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value <= _MAX_TOKENS else None


def parse_totals(input_tokens: Any, output_tokens: Any) -> tuple[int, int] | None:
    """Return the tokens of a call as its server reports them, or None if they cannot be charged.

    They cannot be charged if one of them is missing or invalid, or both are 0, although every call has
    tokens.
    """
    read, output = parse_token_count(input_tokens), parse_token_count(output_tokens)
    return None if read is None or output is None or not read + output else (read, output)


def uncounted(units: Units | None) -> TokenUsage | None:
    """Return the usage of a server that reports units instead of tokens, or None if it reports neither."""
    return None if units is None else TokenUsage(reported=False, units=units)


def limit_parts(usage: TokenUsage) -> TokenUsage:
    """Limit the parts of a usage to its totals, because servers may report parts that exceed them."""
    parts = usage.cached, usage.cache_write, usage.cache_write_long, usage.image_in, usage.audio_in
    if sum(parts) <= usage.input and usage.audio_out <= usage.output:
        return usage
    limited, remaining = list[int](), usage.input
    for part in parts:
        limited.append(min(part, remaining))
        remaining -= limited[-1]
    names = ("cached", "cache_write", "cache_write_long", "image_in", "audio_in")
    fields = dict(zip(names, limited, strict=True))
    return msgspec.structs.replace(usage, **fields, audio_out=min(usage.audio_out, usage.output))


def parse_micros(value: Any) -> int:
    """Return an amount in USD as micro-dollars, rounded up; 0 if it is invalid or implausibly large."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return math.ceil(value * money.MICROS_PER_USD) if is_number and 0 <= value <= _MAX_USD else 0


def merge_usage(reported: TokenUsage | None, expected: TokenUsage, chars: int = 0) -> TokenUsage:
    """Return the usage of an image, audio or embedding call, as reported or else as expected.

    `chars` is the length of a transcript, or 0 for other results.
    """
    if reported is None:
        return msgspec.structs.replace(_of_transcript(expected, chars), reported=False)
    units = _merge_units(reported.units, expected.units)
    return msgspec.structs.replace(
        reported if reported.reported else expected, units=units, reported=reported.reported
    )


def _of_transcript(expected: TokenUsage, chars: int) -> TokenUsage:
    """Return the usage of a recording, which is longer than its file states if its transcript is longer."""
    units = expected.units
    if units is None or not 0 < units.milliseconds < chars * 1000 // _MAX_CHARS_PER_SECOND:
        return expected
    factor = chars * 1000 // _MAX_CHARS_PER_SECOND / units.milliseconds
    scaled = {name: math.ceil(getattr(expected, name) * factor) for name in ("input", "output", "audio_in")}
    milliseconds = math.ceil(units.milliseconds * factor)
    return replace(expected, **scaled, units=replace(units, milliseconds=milliseconds))


def _merge_units(reported: Units | None, expected: Units | None) -> Units | None:
    """Return the reported units, with zeros replaced by the expected units."""
    if reported is None or expected is None:
        return reported or expected
    pairs = zip(msgspec.structs.astuple(reported), msgspec.structs.astuple(expected), strict=True)
    return Units(*(count or fallback for count, fallback in pairs))


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
_TOOL_PRICES = {
    "per_web_search_usd": "per_web_search",
    "per_file_search_usd": "per_file_search",
    "per_code_container_usd": "per_code_container",
    "per_preview_search_usd": "per_preview_search",
    "per_code_execution_usd": "per_code_execution",
}
_UNIT_PRICES = _MODEL_PRICES | _TOOL_PRICES
_NAMES = frozenset(TokenRates.__struct_fields__) - {
    "long_tokens",
    "list_rates",
    "as_billed",
    *_UNIT_PRICES.values(),
}
# A date or version after the name of a family.
_VERSION = re.compile(r"-(?=.)(latest|\d[\d-]{3,})?(-?v\d+(:\d+)?)?")
_COMMENT_FIELDS = frozenset({"as_of", "source"})
_MAX_CACHED = 1024


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
            amounts[_UNIT_PRICES[key]] = _micros(key, value)
        elif key.endswith(_SUFFIX) and name in _NAMES:
            amounts[name] = _micros(key, value)
        else:
            raise ValueError(
                f"{key} is not a price setting; use, for example, input{_SUFFIX} and output{_SUFFIX}"
            )
    if not amounts.keys() & {"input", "character", *_MODEL_PRICES.values()}:
        raise ValueError(f"a price must set input{_SUFFIX}")
    all_amounts: dict[str, Any] = {"input": 0, "output": 0, **amounts}
    return TokenRates(**all_amounts)


def _micros(key: str, value: Any) -> int:
    try:
        amount = Decimal(str(value)) * money.MICROS_PER_USD
    except DecimalException:
        amount = Decimal(-1)
    if not amount.is_finite() or not 0 <= amount < 2**63:
        raise ValueError(f"{key} must be an amount in USD, not {value!r}")
    return int(amount.to_integral_value())


class PricedServer(Protocol):
    """The attributes of a model server that determine prices.

    `price_table` is the prefix of the server's bundled rows.
    """

    name: str
    local: bool
    price_table: str


class PriceBook:
    """Prices of targets by model: the operator's rows first, then the bundled rows.

    `tools` contains the prices of providers' tools, by the name of the setting, for rows that do not set
    them.

    If `own_hardware_free` is set, local model servers are free, and the operator's rows are shown as list
    prices.
    """

    def __init__(
        self,
        bundled: Mapping[str, Mapping[str, Any]],
        own: Mapping[str, Mapping[str, Any]],
        *,
        tools: Mapping[str, Mapping[str, Any]] | None = None,
        own_hardware_free: bool = False,
    ) -> None:
        self._tools = {_TOOL_PRICES[name]: _micros(name, row["usd"]) for name, row in (tools or {}).items()}
        self._bundled = {name: rates(row) for name, row in bundled.items()}
        self._own = {name: _own_rates(name, row) for name, row in own.items()}
        self._free = own_hardware_free
        self._waived = {name: TokenRates(0, 0, list_rates=row) for name, row in self._own.items()}
        self._cache: dict[tuple[str, str], TokenRates | None] = {}

    def rates_of(self, server: PricedServer, model: str, stated: TokenRates | None) -> TokenRates | None:
        """Return the rates of a server's model, or None if its price is unknown.

        A local server is free unless the operator has set a price. Other servers have the operator's rates,
        or else those that the provider states in its list of models, or else the bundled rates.
        """
        if server.local:
            return self.local(server.name, model)
        rates = self.own(server.name, model) or stated or self.find(server.name, model, server.price_table)
        return None if rates is None else self.with_tools(rates)

    def find(self, upstream: str, model: str, table: str = "") -> TokenRates | None:
        """Return the operator's rates for `upstream/model` or the model, or else the bundled rates.

        The bundled rates are those of the model's family in the rows of a provider (`table/…`), or in the
        rows without a provider.
        """
        try:
            return self._cache[upstream, model]
        except KeyError:
            own = self.own(upstream, model)
            rates = own if own is not None else self._bundled.get(family(model, table, self._bundled))
        # Callers may send any number of different names.
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[upstream, model] = rates
        return rates

    def with_tools(self, rates: TokenRates) -> TokenRates:
        """Return rates completed with the prices of providers' tools that they do not set."""
        missing = {name: micros for name, micros in self._tools.items() if getattr(rates, name) is None}
        return replace(rates, **missing)

    def local(self, upstream: str, model: str) -> TokenRates:
        """Return the rates of a local model server: free unless the operator has set a price."""
        rows = self._waived if self._free else self._own
        return rows.get(f"{upstream}/{model}") or rows.get(model) or FREE

    def own(self, upstream: str, model: str) -> TokenRates | None:
        """Return only the operator's rates."""
        return self._own.get(f"{upstream}/{model}") or self._own.get(model)


def _own_rates(name: str, row: Any) -> TokenRates:
    if not isinstance(row, dict):
        raise ValueError(f'[gateway.prices."{name}"] must be a table, not {row!r}')  # noqa: TRY004 - as above
    try:
        return rates(cast("dict[str, Any]", row))
    except ValueError as error:
        raise ValueError(f'[gateway.prices."{name}"] {error}') from error


def family(model: str, table: str, bundled: Collection[str]) -> str:
    """Return the name of a model's row in a bundled table: its name, or the name without a suffix.

    A suffix is a date or version, as in `…-2025-08-07`, `…-latest` and `…-20250929-v1:0`. Names in the table
    of a provider contain the provider's slashes; names of other models are looked up without them.
    """
    prefix = f"{table}/" if table else ""
    base_name = f"{prefix}{model}" if table else model.rpartition("/")[2]
    if base_name in bundled:
        return base_name
    for name in sorted(bundled, key=len, reverse=True):
        is_prefix = name.startswith(prefix) and base_name.startswith(name)
        if is_prefix and _VERSION.fullmatch(base_name, len(name)):
            return name
    return ""
