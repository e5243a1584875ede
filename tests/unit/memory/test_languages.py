"""Words of languages beside English: what they are indexed as, and that their pages are found."""

from __future__ import annotations

import pytest

from bench import languages
from sixfold.core.memory.indexing import tokens

# The least numbers of questions answered by the first result and by the first three.
LEAST = {
    "german": (14, 14),
    "dutch": (12, 12),
    "swedish": (11, 12),
    "danish": (10, 10),
    "chinese": (12, 12),
    "japanese": (12, 12),
    "thai": (10, 10),
    "arabic": (12, 12),
    "hebrew": (14, 14),
    "norwegian": (8, 8),
    "finnish": (8, 8),
    "russian": (8, 8),
    "korean": (8, 8),
    "french": (7, 7),
    "turkish": (8, 8),
}


async def test_pages_in_every_language_are_found() -> None:
    result = await languages.measured()
    assert result.keys() == LEAST.keys()
    for name, (first, third, _) in result.items():
        assert first >= LEAST[name][0], (name, first)
        assert third >= LEAST[name][1], (name, third)


@pytest.mark.parametrize(
    "forms",
    [
        "הישיבה ישיבות לישיבה והישיבה יְשִׁיבָה",
        "הכלב כלב לכלב כלבים",
        "المصرف مصرف والمصرف بالمصرف للمصرف مَصْرِف",
        "المدرسة مدرسة للمدرسة والمدرسة",
        "ネコ ねこ ﾈｺ",
    ],
    ids=["meeting", "dog", "bank", "school", "cat"],
)
def test_forms_of_a_word_are_one_word(forms: str) -> None:
    assert len(set(tokens.words(forms))) == 1, tokens.words(forms)


def test_short_words_keep_their_letters() -> None:
    assert tokens.words("של לב בית") == ["של", "לב", "בית"]
    assert tokens.words("ال و") == ["ال", "و"]
