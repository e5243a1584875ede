"""Links in one long line are parsed in linear time."""

from __future__ import annotations

import pytest

from sixfold.core.memory import markdown
from tests import loop_time

MIB = 2**20


def repeat(text: str) -> str:
    """Return the text, repeated to a size of 1 MiB."""
    return (text * (MIB // len(text) + 1))[:MIB]


@pytest.mark.parametrize(
    "text",
    [
        repeat("[[a]] "),
        "a:: " + repeat("[[b]],"),
        "# " + repeat("[[a]]"),
        repeat("[a](b.md) "),
        repeat("[[x::a]]"),
    ],
    ids=["wiki", "field", "heading", "files", "typed"],
)
def test_links_of_a_long_line_are_parsed_fast(text: str) -> None:
    assert loop_time.cpu_seconds(lambda: markdown.links(text, "a/b"), 1.5) < 1.5
    assert len({link.target for link in markdown.links(text, "a/b")}) == 1


@pytest.mark.parametrize("around", ["x" * 100, "x" * 238, "x" * 239, "x" * 240, "x" * 5_000, "x\n" * 200])
def test_the_context_of_a_link_is_its_line_up_to_the_limit(around: str) -> None:
    text = f"{around}[[a]]{around}"
    context = markdown.links(text)[0].context
    line = next(line for line in text.split("\n") if "[[a]]" in line)
    margin = (markdown.MAX_CONTEXT - 5) // 2
    at = line.index("[[a]]")
    nearest = line[max(0, at - margin) : at + 5 + margin] if len(line) > markdown.MAX_CONTEXT else line
    assert context == nearest
