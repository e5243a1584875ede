"""Two changed texts and the one that both came from, line by line: one text, where they do not touch."""

from __future__ import annotations

import itertools
from difflib import SequenceMatcher

_MAX_LINES = 5_000  # more would take seconds to compare
Change = tuple[int, int, list[str]]


def merged(base: str, ours: str, theirs: str) -> str | None:
    """What both changes make together; None where they touch, or where there is too much to compare."""
    old, mine, other = (text.splitlines(keepends=True) for text in (base, ours, theirs))
    if max(len(old), len(mine), len(other)) > _MAX_LINES:
        return None
    changes = _together(_changes(old, mine), _changes(old, other))
    if changes is None:
        return None
    made: list[str] = []
    at = 0
    for start, end, lines in changes:
        made += old[at:start] + lines
        at = end
    return "".join(made + old[at:])


def _changes(old: list[str], new: list[str]) -> list[Change]:
    """Which lines of `old` were replaced, and by what."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return [(a, b, new[c:d]) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal"]


def _together(mine: list[Change], other: list[Change]) -> list[Change] | None:
    """Both lists as one; the same change counts once. None where two touch."""
    joined = sorted(
        [*mine, *(change for change in other if change not in mine)], key=lambda change: change[:2]
    )
    for before, after in itertools.pairwise(joined):
        if after[0] <= before[1]:
            return None
    return joined
