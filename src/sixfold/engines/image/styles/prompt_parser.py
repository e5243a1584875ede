"""Parser of free prompts into media, palette, light, brush size and texture.

Words come from the tables below; unknown words are ignored. A prompt without a named style is rendered in the
nearest style if it names a related style or misspells a style. A prompt without any known word is rendered as
an oil painting.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.image.styles import names


class StyleLight(msgspec.Struct, frozen=True):
    """A light setting: `exposure` and `contrast` around 0, `chroma` a factor, the rest 0 to 1."""

    exposure: float = 0.0
    contrast: float = 0.0
    chroma: float = 1.0
    glow: float = 0.0
    haze: float = 0.0
    corners: float = 0.0
    shadows: str = ""
    lights: str = ""


class ParsedStyle(msgspec.Struct, frozen=True):
    """A parsed prompt: a grade, up to two media, a palette (dark to light), lights, and the brush scale."""

    grade: str | None = None
    media: tuple[str, ...] = ()
    palette: str = ""
    lights: tuple[StyleLight, ...] = ()
    rough: float = 1.0
    texture: str = ""
    recognized: tuple[str, ...] = ()
    words: PromptWords = NO_WORDS
    # The words of the prompt that the nearest named style represents.
    nearest_to: str = ""


GRADES = ("noir", "vintage", "cyberpunk", "vaporwave", "hdr", "dreamy", "infrared")
_MAX_PROMPT = 4000

# Maps alternative words to a ramp from dark to light.
PALETTES: dict[str, str] = {
    "blue|blues|azure|cobalt|navy|indigo": "060d22 12305f 2d6aa8 7fb2d9 e6f3fb",
    "red|reds|crimson|scarlet|ruby|blood": "1c0508 5e0f14 a8202a e06a55 fbe0d0",
    "orange|oranges|amber|copper": "1f0d05 6b2c0b c4591a f2a04b fff0d4",
    "yellow|yellows|gold|golden|honey": "1f1605 6a4a0d c2901c f0cc57 fff8dc",
    "green|greens|emerald|jade|mossy": "06140c 17452b 3d8552 95c58a eff8e2",
    "teal|turquoise|aqua|cyan": "04161a 0d4750 1f8f97 7fd3cf eafaf5",
    "purple|purples|violet|lavender|lilac": "100620 3b1a63 7a46a8 bb93d6 f5eafb",
    "pink|pinks|rose|magenta|fuchsia": "22071a 7a1d52 d0538c f3a4bd fff0f2",
    "brown|browns|earth|earthy|umber|wood|wooden": "140c07 43291a 86603c c3a075 f3e7d0",
    "grey|gray|greys|silver|steel|concrete": "0c0d10 373b42 747a83 b3b8be f2f3f4",
    "autumn|fall|autumnal": "1c0f0a 5a2412 a8481c d98e32 f0cf86 fbf1d9",
    "winter|ice|icy|snow|snowy|frozen|frost": "0b1626 2f4d6e 7094b3 b7d0e0 f6fbff",
    "spring|blossom|blossoms|cherry": "24302a 5c8f5a a8cf8a f4b6c8 fff4ea",
    "summer|tropical|beach": "0a2a3c 0f7a8c 3fc1b0 ffd166 fff6d6",
    "sunset|dusk|evening": "1a0d2b 4f1d4f a63a50 ee7b3e ffc66b fff0cd",
    "sunrise|dawn|morning": "1d2340 5d5784 c3879a f5b78f ffe9c2",
    "ocean|sea|underwater|marine|water": "031425 0b3c5d 1f7a8c 7cc6c3 eef8ee",
    "forest|jungle|woods|meadow": "08130b 1e3a1f 4c6f35 9fb066 f0f0cf",
    "desert|sand|sandy|dune|dunes": "2a140b 7a431f c58947 e6c48d fbf1dc",
    "fire|flames|lava|volcanic|inferno": "0d0303 4a0a05 b5260a f97b17 ffe07a",
    "candy|bubblegum|sweet": "3a1857 c04fa0 ff8fb8 9fe3e6 fff6d8",
    "mint|sage": "10201c 3f6f5f 86b8a0 c6e4d1 f7fcf5",
}

LIGHTS: dict[str, StyleLight] = {
    "stormy|storm|thunder|tempest": StyleLight(
        -0.22, 0.35, 0.75, corners=0.45, shadows="0c1a33", lights="a9b9c9"
    ),
    "night|midnight|nocturnal|nighttime": StyleLight(
        -0.42, 0.25, 0.85, 0.15, corners=0.4, shadows="060c2c", lights="8fa6e0"
    ),
    "moonlit|moonlight|moon": StyleLight(
        -0.30, 0.2, 0.7, 0.3, corners=0.3, shadows="0a1436", lights="c9d8f5"
    ),
    "fog|foggy|mist|misty|haze|hazy|smoke|smoky": StyleLight(0.05, -0.15, 0.7, 0.1, haze=0.42),
    "sunny|bright|sunlit|radiant|airy": StyleLight(0.22, 0.1, 1.15, 0.2, shadows="3a4d80", lights="fff0c4"),
    "dark|moody|gloomy|shadowy|gothic|sinister|eerie": StyleLight(-0.32, 0.35, 0.8, corners=0.5),
    "warm|cozy|cosy|candlelight|candlelit": StyleLight(
        0.02, 0.05, 1.05, 0.1, shadows="4a2412", lights="ffd08a"
    ),
    "cool|cold|chilly": StyleLight(0.0, 0.05, 0.95, shadows="10264f", lights="d2e8ff"),
    "soft|gentle|tender|calm|peaceful|serene": StyleLight(0.08, -0.15, 0.9, 0.25),
    "contrast|contrasty|bold|striking|epic|intense": StyleLight(0.0, 0.5, 1.15, corners=0.2),
    "faded|washed|bleached|worn": StyleLight(0.12, -0.30, 0.6),
    "vivid|vibrant|colorful|colourful|saturated|psychedelic|rainbow": StyleLight(0.03, 0.2, 1.7),
    "muted|desaturated|subdued|minimal|minimalist": StyleLight(0.03, -0.08, 0.5),
    "glowing|glow|luminous|magical|magic|fairytale|fantasy": StyleLight(0.05, 0.1, 1.2, 0.55),
}

BRUSH: dict[str, float] = {
    "rough|coarse|loose|expressive|energetic|wild|messy": 1.6,
    "thick|broad|heavy|chunky|big|large|huge": 1.5,
    "fine|delicate|detailed|thin|intricate|precise|tiny|small": 0.7,
}
_STROKES = re.compile(r"\b(?:brush\w*|strokes?|painted|painting|paint|painterly|artistic|canvas)\b")
TEXTURES: dict[str, str] = {
    "paper|papery|parchment": "paper",
    "canvas|linen": "weave",
    "grain|grainy|gritty|film": "grain",
}
_KNOWN = re.compile(rf"\b(?:{'|'.join((*PALETTES, *LIGHTS, *BRUSH, *TEXTURES))})\b")
_NEGATED = re.compile(r"\b(?:no|not|without|avoid|never)\s+(?:any\s+)?\w+")
_ALIASES = sorted(names.LOOKUP, key=len, reverse=True)


def parse(prompt: str) -> ParsedStyle:
    name = names.find_style(prompt)
    if name:
        return ParsedStyle(*((name, ()) if name in GRADES else (None, (name,))), recognized=(name,))
    text = _NEGATED.sub(" ", names.normalize(prompt[:_MAX_PROMPT]))
    styles, rest = _styles(text)
    near = None if styles else names.nearest(_KNOWN.sub("_", rest))
    if near:
        styles = [near[0]]
    grade = next((style for style in styles if style in GRADES), None)
    media = tuple(style for style in styles if style not in GRADES)[:2]
    palettes = [ramp for words, ramp in PALETTES.items() if _contains(rest, words)]
    lights = tuple(light for words, light in LIGHTS.items() if _contains(rest, words))[:3]
    scales = [scale for words, scale in BRUSH.items() if _contains(rest, words)]
    texture = next((kind for words, kind in TEXTURES.items() if _contains(rest, words)), "")
    rough = max(0.5, min(2.0, scales[0] if scales else 1.0))
    recognized = (
        *styles,
        *(f"{kind} words" for kind, matches in (("palette", palettes), ("light", lights)) if matches),
    )
    if not media and (_STROKES.search(rest) or scales):
        media = ("oil painting" if rough >= 1 else "gouache",)
    palette = _blend_ramps(palettes)
    if not media and grade is None:
        media = (_fallback(palette, lit=bool(lights)),)
    phrase = near[1] if near else ""
    words = _words(prompt, styles, phrase)
    return ParsedStyle(grade, media, palette, lights, rough, texture, recognized, words, phrase)


def _words(prompt: str, styles: Sequence[str], phrase: str) -> PromptWords:
    """Return the words of a prompt that name styles, colors, light or brushes, and the other words.

    `phrase` contains the words that the nearest style represents.
    """
    aliases = "|".join(re.escape(alias) for alias in _ALIASES if names.LOOKUP[alias] in styles)
    tables = (*PALETTES, *LIGHTS, *BRUSH, *TEXTURES, *([aliases] if aliases else []))
    tables = (*tables, *([r"\W+".join(map(re.escape, phrase.split()))] if phrase else []))
    patterns = [re.compile(rf"\b(?:{words})\b") for words in tables]
    return prompt_words.of_patterns(prompt[:_MAX_PROMPT], [*patterns, _STROKES, _NEGATED])


def _contains(text: str, alternatives: str) -> bool:
    return re.search(rf"\b(?:{alternatives})\b", text) is not None


def _styles(text: str) -> tuple[list[str], str]:
    """Return the named styles in order of appearance, and the rest of the text."""
    positions: dict[str, int] = {}
    for alias in _ALIASES:
        match = re.search(rf"\b{re.escape(alias)}\b", text)
        if match:
            style = names.LOOKUP[alias]
            positions[style] = min(positions.get(style, match.start()), match.start())
            # Blanking keeps positions, and "oil" is not found again inside "oil painting".
            text = text[: match.start()] + " " * len(match.group()) + text[match.end() :]
    return sorted(positions, key=positions.__getitem__), text


def _blend_ramps(ramps: list[str]) -> str:
    """Blend up to three ramps into one ramp: the darks of the first, the lights of the last."""
    if len(ramps) < 2:
        return ramps[0] if ramps else ""
    parts = [ramp.split() for ramp in ramps[:3]]
    length = 6
    colors: list[str] = []
    for at in range(length):
        part = parts[at * len(parts) // length]
        colors.append(part[round(at / (length - 1) * (len(part) - 1))])
    return " ".join(colors)


def _fallback(palette: str, *, lit: bool) -> str:
    """Return the style for a prompt without one: gouache if it names a palette or light, else oil."""
    return "gouache" if palette or lit else "oil painting"
