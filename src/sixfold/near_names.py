"""Similar names, which errors suggest for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from itertools import islice

# Number of characters of a name that are compared, and of names that are compared with it.
_MAX_CHARS, _MAX_NAMES = 200, 1000
_MAX_SUGGESTIONS, _MAX_LISTED = 3, 100
# The minimum ratio of the characters that two names share, and how much less than the best one it may be.
_SIMILAR, _MAX_BEHIND = 0.6, 0.1


def similar(name: str, names: Collection[str]) -> list[str]:
    """Return the similar names, the most similar first; capital letters are not distinguished."""
    known = {each.lower(): each for each in islice(names, _MAX_NAMES)}
    text = name[:_MAX_CHARS].lower()
    found = difflib.get_close_matches(text, known, _MAX_SUGGESTIONS, _SIMILAR)
    ratios = [difflib.SequenceMatcher(None, each, text).ratio() for each in found]
    return [
        known[each] for each, ratio in zip(found, ratios, strict=True) if ratio >= ratios[0] - _MAX_BEHIND
    ]


def question(name: str, names: Collection[str], otherwise: str = "") -> str:
    """Return `did you mean …?` with the similar names, or `otherwise` if no name is similar."""
    found = similar(name, names)
    return f"did you mean {joined(found)}?" if found else otherwise


def advice(name: str, names: Sequence[str]) -> str:
    """Return the question, or all names after `use` if none is similar; empty if they are more than 100."""
    return question(name, names, f"use {', '.join(names)}" if len(names) <= _MAX_LISTED else "")


def joined(names: Sequence[str]) -> str:
    """Return names with commas and `or`: `a, b or c`."""
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
