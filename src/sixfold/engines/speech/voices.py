"""The 26 voices of `data/voices.toml`, and which language a request is spoken in."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from sixfold.core.catalog.engines import UnusableInput

# Languages beside the voices' own that the synthesiser speaks well enough to be offered, by its names.
_OWN = {"en": "en-us", "pt": "pt-br", "no": "nb"}
_CODES = (
    "en es fr de it pt nl sv da nb no fi pl cs sk hu ro el tr ru uk hi id vi ca eo la sw cy is hr bg lt lv et"
)
LANGUAGES = {code: _OWN.get(code, code) for code in _CODES.split()}
_NAMES = {
    "english": "en", "spanish": "es", "french": "fr", "german": "de", "italian": "it", "portuguese": "pt",
    "dutch": "nl", "swedish": "sv", "danish": "da", "norwegian": "nb", "finnish": "fi", "polish": "pl",
    "russian": "ru", "turkish": "tr", "greek": "el", "hindi": "hi", "ukrainian": "uk", "czech": "cs",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpeakingVoice:
    """One voice: the fields are those of its row in `data/voices.toml`."""

    id: str
    language: str
    accent: str
    colour: str
    pitch: int
    lilt: int
    pace: int
    warmth: float


@cache
def table() -> Mapping[str, SpeakingVoice]:
    """Every voice by its id, in the table's order."""
    text = resources.files("sixfold.data").joinpath("voices.toml").read_text("utf-8")
    return {name: SpeakingVoice(id=name, **row) for name, row in tomllib.loads(text).items()}


def find(name: str) -> SpeakingVoice:
    """The voice of this id, whatever its case; the first for none. Raises `UnusableInput`."""
    known = table()
    wanted = name.strip().casefold()
    if not wanted:
        return next(iter(known.values()))
    if wanted not in known:
        raise UnusableInput(f"There is no voice {name!r}; the voices are {', '.join(known)}.")
    return known[wanted]


def language(hint: str) -> str:
    """The code that a hint names: `de`, `de-AT`, `German`, `auto` (none). Raises `UnusableInput`."""
    said = hint.strip().casefold()
    if said in ("", "auto"):
        return ""
    code = _NAMES.get(said, said.replace("_", "-").partition("-")[0])
    if code not in LANGUAGES:
        raise UnusableInput(f"The language {hint!r} is not known; name one as {', '.join(LANGUAGES)}.")
    return code


def accent(voice: SpeakingVoice, hint: str) -> str:
    """The synthesiser's language for a voice and a hint."""
    code = language(hint)
    return voice.accent if code in ("", voice.language) else LANGUAGES[code]
