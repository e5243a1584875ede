"""Front matter that YAML's aliases would make much larger than its text."""

from __future__ import annotations

import tracemalloc

import pytest

from sixfold.core.memory import frontmatter
from tests import loop_time


def head(text: str) -> str:
    return f"---\n{text}\n---\n"


def laughs(last: str) -> str:
    """Return twenty lists, each of which refers to the previous one fifty times."""
    lines = ["k0: &k0 [x]"]
    lines += [f"k{n}: &k{n} [{','.join([f'*k{n - 1}'] * 50)}]" for n in range(1, 20)]
    return head("\n".join([*lines, last]))


WIDE = ", ".join(f"k{number}: v" for number in range(3_000))
WORST = {
    "rows of many keys": head(f"links:\n- &a {{{WIDE}, to: x}}\n" + "- *a\n" * 1_900),
    "rows of long texts": head(f"links:\n- &a {{to: x, context: {'y' * 40_000}}}\n" + "- *a\n" * 1_900),
    "many rows": head("timeline:\n- &a {date: 2026, summary: x}\n" + "- *a\n" * 12_000),
    "lists in lists": laughs("links: *k19"),
    "tags of lists": laughs("tags: *k19"),
    "deep": head("[" * 290 + "a"),
    "deep mappings": head("\n".join(" " * depth + "a:" for depth in range(59))),
}


@pytest.mark.parametrize("name", WORST)
def test_front_matter_with_aliases_is_read_in_bounded_time(name: str) -> None:
    text = WORST[name]
    assert loop_time.cpu_seconds(lambda: frontmatter.read(text), 1) < 1
    tracemalloc.start()
    try:
        frontmatter.read(text)
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert grown < 16 * 2**20


@pytest.mark.parametrize("name", ["rows of long texts", "many rows", "lists in lists"])
def test_rows_repeated_by_aliases_beyond_limits_are_dropped(name: str) -> None:
    fields = frontmatter.read(WORST[name])
    assert fields is not None
    assert fields.links is None
    assert fields.timeline is None


def test_an_alias_within_the_limits_is_its_row() -> None:
    fields = frontmatter.read(head("links:\n- &a {to: x, type: knows}\n- *a\n- {to: y, other: z}"))
    assert fields is not None
    assert fields.links == ({"to": "x", "type": "knows"}, {"to": "x", "type": "knows"}, {"to": "y"})
