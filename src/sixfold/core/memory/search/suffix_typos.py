"""What a word may be whose ending is written wrong.

A stemmer takes off only the endings that it knows: `organizatoin` is its own stem, five letters from `organ`.
So it is asked again about all that one edit makes of the last letters.
"""

from __future__ import annotations

from collections.abc import Iterator

from sixfold.core.memory.indexing import tokens

_END = 6  # letters among which an edit is sought
_LEAST_TAKEN = 2  # letters that a stemmer takes off; where it takes fewer, the stems are near enough
_LEAST_LEFT = 3
_TURNED = ("i", "e")  # what a stem may end in instead of letters that were taken off: studi, write
_EXCHANGED = 7  # letters from which one may be another, as in the middle of a word
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "αβγδεζηθικλμνξοπρστυφχψω", "абвгдежзийклмнопрстуфхцчшщъыьэюя")


def stems(word: str) -> frozenset[str]:
    """The stems that a folded word has when one edit is made among its last letters, and none before them."""
    letters = next((alphabet for alphabet in _ALPHABETS if word[0] in alphabet), "")
    forms = ((form, tokens.stem_once(form)) for form in _edited(word, letters))
    return frozenset(stem for form, stem in forms if _ends(word, form, stem))


def _ends(word: str, form: str, stem: str) -> bool:
    """Whether a stem is what a word says but for its ending."""
    kept = stem[:-1] if stem.endswith(_TURNED) else stem
    return len(stem) >= _LEAST_LEFT and len(form) - len(stem) >= _LEAST_TAKEN and word.startswith(kept)


def _edited(word: str, letters: str) -> Iterator[str]:
    """A word with one letter more or less, two that change places, or, in a long one, another letter."""
    for at in range(max(1, len(word) - _END), len(word) + 1):
        head, tail = word[:at], word[at:]
        yield head + tail[1:]
        yield head + tail[1::-1] + tail[2:]
        for letter in letters:
            yield head + letter + tail
            if len(word) >= _EXCHANGED:
                yield head + letter + tail[1:]
