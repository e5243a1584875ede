"""Candidates for misspelled words whose stem is not similar to that of the correct word.

A stemmer removes only known suffixes: `organizatoin` is its own stem, five letters from `organ`. Therefore
all single edits of the last letters are stemmed as well, and edits of the other letters of a long word,
because the stems of `seperate` and `separate` are too short to compare.
"""

from __future__ import annotations

from collections.abc import Iterator

from sixfold.core.memory.indexing import tokens

# The number of last letters that are edited.
_LAST_LETTERS = 6
# The minimum letters that a stemmer must remove; with fewer, the stems are similar enough.
_MIN_SUFFIX = 2
_MIN_STEM = 3
# The possible last letters of a stem in place of the removed ones: studi, write.
_STEM_ENDS = ("i", "e")
# The minimum letters of a word in which a letter may be replaced.
_MIN_REPLACEABLE = 7
# Longer words have too many edits.
_MAX_LETTERS = 20
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "αβγδεζηθικλμνξοπρστυφχψω", "абвгдежзийклмнопрстуфхцчшщъыьэюя")


def stems(word: str) -> frozenset[str]:
    """Return the stems that a folded word has after one edit of its last letters."""
    letters = next((alphabet for alphabet in _ALPHABETS if word[0] in alphabet), "")
    forms = ((form, tokens.stem_once(form)) for form in _edits(word, letters, _LAST_LETTERS))
    return frozenset(stem for form, stem in forms if _ends(word, form, stem))


def all_stems(word: str) -> frozenset[str]:
    """Return the stems that a long folded word has after one edit of any letter except the first."""
    letters = next((alphabet for alphabet in _ALPHABETS if word[0] in alphabet), "")
    if not _MIN_REPLACEABLE <= len(word) <= _MAX_LETTERS:
        return frozenset()
    stems = map(tokens.stem_once, _edits(word, letters, len(word)))
    return frozenset(stem for stem in stems if len(stem) > _MIN_STEM)


def _ends(word: str, form: str, stem: str) -> bool:
    """Return whether a stem is the word except for its suffix."""
    root = stem[:-1] if stem.endswith(_STEM_ENDS) else stem
    return len(stem) >= _MIN_STEM and len(form) - len(stem) >= _MIN_SUFFIX and word.startswith(root)


def _edits(word: str, letters: str, last: int) -> Iterator[str]:
    """Yield words with one of the last letters added, removed or swapped, or replaced in a long word."""
    for at in range(max(1, len(word) - last), len(word) + 1):
        head, tail = word[:at], word[at:]
        yield head + tail[1:]
        yield head + tail[1::-1] + tail[2:]
        for letter in letters:
            yield head + letter + tail
            if len(word) >= _MIN_REPLACEABLE:
                yield head + letter + tail[1:]
