"""Three-way merges: nothing is lost, and only overlapping changes conflict."""

from __future__ import annotations

import itertools
import re
from difflib import SequenceMatcher

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sixfold.core.memory import diff, merge
from tests.loop_time import cpu_seconds

LINES = st.lists(
    st.sampled_from(["a\n", "b\n", "c\n", "\n", "one word\n", "a\r\n", "=======\n", "d\r", "é\u2028f\n"])
)
TEXTS = st.builds(lambda lines, last: "".join(lines) + last, LINES, st.sampled_from(["", "end"]))


@given(st.text(alphabet="ab\n\r\x0b\x85\u2028"))
def test_joined_lines_equal_the_text(text: str) -> None:
    lines = diff.lines(text)
    assert "".join(lines) == text
    assert all("\n" not in line.rstrip("\r\n") and "\r" not in line.rstrip("\r\n") for line in lines)


@given(TEXTS, TEXTS)
def test_blocks_cover_both_texts_in_their_order(old: str, new: str) -> None:
    a, b = diff.lines(old), diff.lines(new)
    blocks = diff.blocks(a, b)
    assert [line for block in blocks for line in a[slice(*block.old)]] == a
    assert [line for block in blocks for line in b[slice(*block.new)]] == b
    for block in blocks:
        assert not block.same or a[slice(*block.old)] == b[slice(*block.new)]


@given(TEXTS, TEXTS)
def test_hunks_contain_exactly_the_changes(old: str, new: str) -> None:
    hunks = diff.hunks(old, new, context=0)
    lines = [line for hunk in hunks for line in hunk.lines]
    removals = {
        line.old: "".join(piece.text for piece in line.pieces) for line in lines if line.kind == "gone"
    }
    come = {line.new: "".join(piece.text for piece in line.pieces) for line in lines if line.kind == "new"}
    before = [line.rstrip("\r\n") for line in diff.lines(old)]
    after = [line.rstrip("\r\n") for line in diff.lines(new)]
    assert (not hunks) == (old == new)
    assert len(removals) - len(come) == len(before) - len(after)
    assert all(before[number - 1] == text for number, text in removals.items())
    assert all(after[number - 1] == text for number, text in come.items())


@given(TEXTS, TEXTS)
def test_unified_diff_has_both_texts_and_line_numbers(old: str, new: str) -> None:
    a, b = old.splitlines(), new.splitlines()
    full_diff = list(diff.unified(a, b, ("a", "b"), context=10_000))
    assert (not full_diff) == (a == b)
    for text, signs in ((a, " -"), (b, " +")):
        assert a == b or [line[1:] for line in full_diff[3:] if line[0] in signs] == text
    for at, line in enumerate(hunk := list(diff.unified(a, b, ("a", "b"), context=1))):
        if match := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            start, length = int(match[1]), int(match[2] or 1)
            lines = itertools.takewhile(lambda each: each[0] != "@", hunk[at + 1 :])
            assert (
                a[start - 1 : start - 1 + length] == [each[1:] for each in lines if each[0] in " -"]
                or not length
            )


def test_differing_words_are_marked_within_a_line() -> None:
    (hunk,) = diff.hunks("The launch is in June.\n", "The launch is in July.\n")
    differing = [[piece.text for piece in line.pieces if piece.differs] for line in hunk.lines]
    assert differing == [["June"], ["July"]]


def test_texts_too_costly_to_compare_are_one_block() -> None:
    old, new = ["x\n", *["same\n"] * 3000], ["y\n", *["same\n"] * 2999, "z\n"]
    assert len(diff.blocks(old, new)) <= 3


@given(TEXTS, TEXTS)
def test_a_change_of_one_side_is_applied(base: str, other: str) -> None:
    assert merge.texts(base, base, other).text == other
    assert merge.texts(base, other, base).text == other
    assert merge.texts(base, other, other).text == other


@given(TEXTS, TEXTS, TEXTS)
@example("a\nb\n", "a\nend", "a\nb\nc\n")
def test_merge_keeps_the_lines_of_both_sides(base: str, mine: str, theirs: str) -> None:
    merged = merge.texts(base, mine, theirs)
    there = {line.rstrip("\r\n") for line in diff.lines(merged.text)}
    known = {line.rstrip("\r\n") for line in diff.lines(base)}
    for text in (mine, theirs):
        assert {line.rstrip("\r\n") for line in diff.lines(text)} - known <= there
    assert bool(merged.conflicts) <= merge.has_marks(merged.text)


@given(TEXTS, TEXTS, TEXTS)
def test_both_sides_see_the_same_conflicts(base: str, mine: str, theirs: str) -> None:
    first, second = merge.texts(base, mine, theirs), merge.texts(base, theirs, mine)
    assert [part.sides for part in first.conflicts] == [part.sides[::-1] for part in second.conflicts]
    if not first.conflicts:
        assert first.text == second.text


@given(st.lists(st.integers(0, 19), unique=True), st.data())
def test_edits_of_separate_lines_are_both_merged(places: list[int], data: st.DataObject) -> None:
    base = [f"line {number}\n" for number in range(40)]
    mine, theirs = list(base), list(base)
    for number in places:
        editor = data.draw(st.sampled_from([mine, theirs]))
        editor[number * 2] = f"changed {number}\n"
    merged = merge.texts("".join(base), "".join(mine), "".join(theirs))
    both = [a if a != line else b for line, a, b in zip(base, mine, theirs, strict=True)]
    assert not merged.conflicts
    assert merged.text == "".join(both)


def test_conflict_is_marked_and_read_as_two_sides() -> None:
    merged = merge.texts("# T\nold\nend\n", "# T\nmine\nend\n", "# T\ntheirs\nend\n")
    assert merged.text == "# T\n<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> theirs\nend\n"
    assert merge.readable(merged.text) == "# T\n\n*yours:*\n\nmine\n\n*theirs:*\n\ntheirs\n\nend\n"
    assert not merge.has_marks("a\n=======\nb <<<<<<< yours\n")


NAMES = st.lists(st.sampled_from("abcdef"), unique=True)


@given(NAMES, NAMES, NAMES)
def test_tags_are_merged_as_sets(base: list[str], mine: list[str], theirs: list[str]) -> None:
    merged = merge.names(base, mine, theirs)
    added = (set(mine) | set(theirs)) - set(base)
    remaining = set(base) & set(mine) & set(theirs)
    assert set(merged) == added | remaining
    assert len(set(merged)) == len(merged)


@given(st.sampled_from("abc"), st.sampled_from("abc"), st.sampled_from("abc"))
def test_field_conflicts_if_both_sides_change_it_differently(base: str, mine: str, theirs: str) -> None:
    value, clashes = merge.value(base, mine, theirs)
    assert value in {mine, theirs}
    assert clashes == (len({base, mine, theirs}) == 3)
    assert value != base or base in {mine, theirs}


@given(TEXTS)
def test_text_from_a_form_keeps_its_line_endings(text: str) -> None:
    sent = text.replace("\r\n", "\n").replace("\r", "\n")
    assert merge.with_ends_of(sent, text) == text


def test_new_line_has_the_ending_of_the_previous_line() -> None:
    assert merge.with_ends_of("a\nnew\nb\n", "a\r\nb\r\n") == "a\r\nnew\r\nb\r\n"
    assert merge.with_ends_of("new\n", "a\n") == "new\n"


def _scatter(count: int, line: str) -> str:
    return "".join(f"shared {at}\n{line} {at}\n" for at in range(count))


class _CountingMatcher(SequenceMatcher[str]):
    """Counts the items that it compares."""

    compared = 0

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None):
        assert ahi is not None
        type(self).compared += ahi - alo
        return super().find_longest_match(alo, ahi, blo, bhi)


@pytest.mark.parametrize(("before", "after"), [(_scatter(20_000, "a"), _scatter(20_000, "b"))])
def test_long_texts_are_compared_in_bounded_steps(
    before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_CountingMatcher, "compared", 0)
    monkeypatch.setattr(diff, "SequenceMatcher", _CountingMatcher)
    blocks = diff.blocks(diff.lines(before), diff.lines(after))
    assert _CountingMatcher.compared < 5_000_000
    # The lines that both texts have are still found.
    assert sum(block.same for block in blocks) == 20_000
    words = " ".join(f"w{at} a" for at in range(100)), " ".join(f"w{at} b" for at in range(100))
    diff.hunks(f"{words[0]}\n" * 2_000, f"{words[1]}\n" * 2_000)
    assert _CountingMatcher.compared < 10_000_000
    lines = before.splitlines()[:5_000], after.splitlines()[:5_000]
    assert sum(1 for _ in diff.unified(*lines, ("a", "b"))) > 5_000
    assert _CountingMatcher.compared < 15_000_000


def test_hunks_build_only_the_lines_shown() -> None:
    hunks = diff.hunks("\n" * 200_000, "x\n" * 100_000)
    assert diff.MAX_LINES < sum(len(hunk.lines) for hunk in hunks) <= 2 * (diff.MAX_LINES + 1)


def test_long_texts_are_divided_at_lines_that_occur_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_CountingMatcher, "compared", 0)
    monkeypatch.setattr(diff, "SequenceMatcher", _CountingMatcher)
    base, mine, theirs = (
        "".join(f"{at}{side if at % 2 else ''}\n" for at in range(20_000)) for side in ("", "a", "b")
    )
    merged = merge.texts(base, mine, theirs)
    assert len(merged.conflicts) == 10_000
    assert merged.conflicts[0].sides == ("1a\n", "1b\n")
    assert _CountingMatcher.compared < 60_000


@given(
    st.text(alphabet="\na\r"), st.lists(st.sampled_from([merge.MINE, merge.BETWEEN, merge.THEIRS, "a", ""]))
)
def test_conflicts_in_a_text_are_those_with_all_marks_in_order(text: str, lines: list[str]) -> None:
    text = text.join(f"{line}\n" for line in lines)
    pattern = rf"^{merge.MINE}\n(.*?)^{merge.BETWEEN}\n(.*?)^{merge.THEIRS}(?:\n|$)"
    conflict = re.compile(pattern, re.MULTILINE | re.DOTALL)
    assert merge.conflicts_in(text) == [match.groups() for match in conflict.finditer(text)]
    assert merge.readable(text) == conflict.sub(r"\n*yours:*\n\n\1\n*theirs:*\n\n\2\n", text)


def test_text_of_marks_is_read_in_linear_time() -> None:
    text = f"{merge.MINE}\n{merge.BETWEEN}\n" * 10_000
    assert cpu_seconds(lambda: merge.readable(text), 0.1) < 0.2
    assert merge.readable(text) == text
