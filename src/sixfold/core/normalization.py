"""Unicode normalization in linear time.

`unicodedata.normalize` sorts a run of combining characters in quadratic time and holds the GIL. Long texts
are therefore brought into the Stream-Safe Text Format of UAX #15 first: a run of more than 30 combining
characters is divided by U+034F COMBINING GRAPHEME JOINER, which no normalization moves or removes.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

MAX_RUN = 30  # combining characters, as UAX #15 has it
MAX_DECOMPOSED = 4  # characters that NFC makes one of, at most
_SHORT = 1_000  # characters, sorted in 0.2 ms at worst: names that are stored already keep their form
_END = 0x1F000  # after the last combining character; emoji follow
_JOINER = "\u034f"
_DIVIDED = rf"\g<0>{_JOINER}"

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def normalized(form: Form, text: str) -> str:
    """The text in a normalization form."""
    if len(text) > _SHORT and not text.isascii():
        likely, exact = _long_runs()
        text = likely.sub(lambda run: exact.sub(_DIVIDED, run[0]), text)
    return unicodedata.normalize(form, text)


@cache
def _long_runs() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What matches all long runs and little else, fast, and what matches 30 characters of one that has more.

    The class holds each character whose decomposition begins with a combining character, so also the few, as
    U+FF9E, that are not combining themselves.
    """
    decompositions = ((char, unicodedata.normalize("NFKD", char)) for char in map(chr, range(_END)))
    marks = "".join(char for char, text in decompositions if unicodedata.combining(text[0]))
    plane_0 = "".join(char for char in marks if char < "\U00010000")  # `re` has a table for these only
    likely = f"[{plane_0}\U00010000-{chr(_END - 1)}]"
    return re.compile(f"{likely}{{{MAX_RUN + 1},}}"), re.compile(f"[{marks}]{{{MAX_RUN}}}(?=[{marks}])")
