"""What Anthropic's models take of thinking and of chance, which changed from one generation to the next.

Source: https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking, …/effort and
…/about-claude/models/whats-new-claude-4-7. Until Claude 4.5 a thought has a budget of tokens; since 4.6 the
model finds its length by an effort, which older ones refuse, and since 4.7 it refuses a budget, `temperature`
and `top_p`. The old names are all known, and so are told from those that are to come; others that servers
of this protocol have go by the older ways.
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
_EFFORTS = {"minimal": "low", "xhigh": "high"}  # what not every generation knows, by what all do
_BY_BUDGET = re.compile(r"claude-(instant|v?[123]|(opus|sonnet|haiku)-4(?![-.]([6-9]|\d\d)(?!\d)))")
_LAST_WITH_CHANCE = re.compile(r"claude-(opus|sonnet|haiku)-4[-.]6(?!\d)")


def room(effort: str) -> int:
    """Tokens that a thought may take beside the answer; 0 where none is asked for."""
    return _BUDGETS.get(effort, 0)


def thinking(model: str, effort: str) -> dict[str, Any]:
    """The fields by which a model is asked to think; none where `effort` asks for no thought."""
    if not room(effort):
        return {}
    if not _finds_its_length(model):
        return {"thinking": {"type": "enabled", "budget_tokens": room(effort)}}
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": _EFFORTS.get(effort, effort)}}


def takes_chance(model: str) -> bool:
    """Whether `temperature` and `top_p` are no error."""
    return not _finds_its_length(model) or _LAST_WITH_CHANCE.search(model) is not None


def _finds_its_length(model: str) -> bool:
    return "claude" in model and _BY_BUDGET.search(model) is None
