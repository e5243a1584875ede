"""Usage that servers of Anthropic's Messages API report: `input_tokens` exclude tokens of the cache."""

from __future__ import annotations

from typing import Any

import msgspec

from sixfold.core.gateway.pricing.usage import TokenUsage, Units, parse_token_count, parse_totals, uncounted


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: Any = None


class _ToolUses(msgspec.Struct):
    web_search_requests: Any = None


class MessagesUsage(msgspec.Struct):
    """The reported usage; servers may send values of any type."""

    input_tokens: Any = None
    output_tokens: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_creation: _CacheCreation | None = None
    server_tool_use: _ToolUses | None = None

    def read(self, *, runs_code: bool = False) -> TokenUsage | None:
        """Return the usage of a message, or None if the main counts are missing or invalid.

        `runs_code` states whether the server has run code for the message.
        """
        cached = parse_token_count(self.cache_read_input_tokens) or 0
        cache_writes = parse_token_count(self.cache_creation_input_tokens) or 0
        creation = self.cache_creation or _CacheCreation()
        long_cache_writes = min(cache_writes, parse_token_count(creation.ephemeral_1h_input_tokens) or 0)
        searches = parse_token_count((self.server_tool_use or _ToolUses()).web_search_requests) or 0
        units = (
            Units(web_searches=searches, code_executions=int(runs_code)) if searches or runs_code else None
        )
        # Tokens of the cache are not part of `input_tokens`, which may be 0.
        totals = parse_totals(self.input_tokens, self.output_tokens)
        if totals is None:
            return uncounted(units)
        return TokenUsage(
            input=totals[0] + cached + cache_writes,
            output=totals[1],
            cached=cached,
            cache_write=cache_writes - long_cache_writes,
            cache_write_long=long_cache_writes,
            units=units,
        )

    def merge(self, older: MessagesUsage | None) -> MessagesUsage:
        """Return these counts, with missing ones copied from `older`.

        The end of a stream may omit counts that the start contained.
        """
        if older is None:
            return self
        pairs = {name: (getattr(self, name), getattr(older, name)) for name in self.__struct_fields__}
        return MessagesUsage(**{name: old if new is None else new for name, (new, old) in pairs.items()})
