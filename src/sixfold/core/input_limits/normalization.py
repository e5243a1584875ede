"""Unicode normalization in linear time.

`unicodedata.normalize` sorts a run of combining characters in quadratic time and holds the GIL. Therefore
long texts are first converted to the Stream-Safe Text Format of UAX #15: a run of more than 30 combining
characters is divided by U+034F COMBINING GRAPHEME JOINER, which normalization neither moves nor removes.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

# Maximum length of a run of combining characters, from UAX #15.
MAX_RUN = 30
# Maximum number of characters that NFC composes into one.
MAX_DECOMPOSED = 4
# Shorter texts take 0.2 ms at most and are normalized directly, so stored names keep their form.
_SHORT = 1_000
# Follows the last combining character.
_END = 0x1F000
_JOINER = "\u034f"
_DIVIDED = rf"\g<0>{_JOINER}"

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def normalized(form: Form, text: str) -> str:
    if len(text) > _SHORT and not text.isascii():
        likely, exact = _long_runs()
        text = likely.sub(lambda run: exact.sub(_DIVIDED, run[0]), text)
    return unicodedata.normalize(form, text)


@cache
def _long_runs() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return two patterns for long runs of combining characters: a fast one and an exact one.

    The fast pattern matches all long runs and few other strings, and the exact one 30 characters of a long
    run.

    The character class contains each character whose decomposition begins with a combining character,
    including the few, such as U+FF9E, that are not themselves combining characters.
    """
    decompositions = ((char, unicodedata.normalize("NFKD", char)) for char in map(chr, range(_END)))
    marks = "".join(char for char, text in decompositions if unicodedata.combining(text[0]))
    # `re` has a lookup table only for the Basic Multilingual Plane.
    plane_0 = "".join(char for char in marks if char < "\U00010000")
    likely = f"[{plane_0}\U00010000-{chr(_END - 1)}]"
    return re.compile(f"{likely}{{{MAX_RUN + 1},}}"), re.compile(f"[{marks}]{{{MAX_RUN}}}(?=[{marks}])")
