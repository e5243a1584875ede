"""Words of prompts about motion, in the languages that the painter of scenes reads."""

from __future__ import annotations

import re
import tomllib
from importlib import resources

from sixfold.engines import prompt_words

_TABLE: dict[str, dict[str, str]] = tomllib.loads(
    resources.files("sixfold.engines.video.motion").joinpath("words.toml").read_text("utf-8")
)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("|".join(_TABLE[name].values()))


STILL = _pattern("still")
FAST = _pattern("fast")
SLOW = _pattern("slow")
VERBS = _pattern("verbs")
WIND = _pattern("wind")
CALM = _pattern("calm")
FLASH = _pattern("flash")
LIGHTNING = _pattern("lightning")
RAIN = _pattern("rain")
SNOW = _pattern("snow")
MIST = _pattern("mist")
PLANTS = _pattern("plants")
DRY = _pattern("dry")
_CAMERA = _pattern("camera")


def of_subjects(prompt: str) -> str:
    """Return the folded prompt of a scene without descriptions of the camera."""
    return _CAMERA.sub(" ", prompt_words.fold(prompt))
