"""English words for search and for the parsing of sentences, from `data/english.toml`.

`STOP_WORDS` are not indexed, and `BASE_FORMS` maps an irregular form to the form that is indexed instead.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[3] / "data" / "english.toml"
_DOCUMENT: dict[str, Any] = tomllib.loads(_FILE.read_text("utf-8"))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


STOP_WORDS = frozenset(_words(_DOCUMENT["stop_words"]))
BASE_FORMS: dict[str, str] = {
    form: base for base, *forms in map(_words, _DOCUMENT["base_forms"].split(";")) for form in forms
}

# Personal pronouns as subjects.
PERSONS = _words(_DOCUMENT["pronouns"]["persons"])
# Possessive pronouns.
POSSESSIVES = _words(_DOCUMENT["pronouns"]["possessives"])
# Pronouns that can begin a sentence.
SUBJECTS = _words(_DOCUMENT["pronouns"]["subjects"])
