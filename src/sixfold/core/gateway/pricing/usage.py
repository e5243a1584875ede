"""Token usage of calls, and its parsing."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec.structs import replace

from sixfold.core import money

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
_COUNTS = (
    *("input", "output", "cached", "cache_write", "cache_write_long"),
    *("image_in", "audio_in", "audio_out", "reasoning"),
)


def add_usage(first: TokenUsage, second: TokenUsage) -> TokenUsage:
    """Return the tokens of two calls together, without their other units."""
    counts = {name: getattr(first, name) + getattr(second, name) for name in _COUNTS}
    return TokenUsage(**counts, reported=first.reported and second.reported)


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
