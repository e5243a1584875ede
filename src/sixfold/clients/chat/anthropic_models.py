"""Thinking and sampling parameters that each generation of Anthropic's models accepts.

Source: https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking, …/effort and
…/about-claude/models/whats-new-claude-4-7. Up to Claude 4.5, thinking has a token budget. Since 4.6 it has an
effort, which older models reject; since 4.7 a budget, `temperature` and `top_p` are rejected. The older
models are matched by name; unknown Claude models count as newer ones, and other models as older ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BUDGETS: Mapping[str, int] = {
    "minimal": 1024,
    "low": 1024,
    "medium": 4096,
    "high": 16384,
    "xhigh": 16384,
    "max": 16384,
}
# Efforts that not every generation supports, and their replacements.
_EFFORTS = {"minimal": "low", "xhigh": "high"}
_BY_BUDGET = re.compile(r"claude-(instant|v?[123]|(opus|sonnet|haiku)-4(?![-.]([6-9]|\d\d)(?!\d)))")
_LAST_WITH_SAMPLING = re.compile(r"claude-(opus|sonnet|haiku)-4[-.]6(?!\d)")


def thinking_tokens(effort: str) -> int:
    """Return the token budget for thinking, or 0 if thinking is disabled."""
    return _BUDGETS.get(effort, 0)


def thinking(model: str, effort: str) -> dict[str, Any]:
    """Return the request fields that enable thinking; empty if `effort` is."""
    if not thinking_tokens(effort):
        return {}
    if not _is_adaptive(model):
        return {"thinking": {"type": "enabled", "budget_tokens": thinking_tokens(effort)}}
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": _EFFORTS.get(effort, effort)}}


def allows_sampling(model: str) -> bool:
    """Return whether the model accepts `temperature` and `top_p`."""
    return not _is_adaptive(model) or _LAST_WITH_SAMPLING.search(model) is not None


def _is_adaptive(model: str) -> bool:
    return "claude" in model and _BY_BUDGET.search(model) is None
