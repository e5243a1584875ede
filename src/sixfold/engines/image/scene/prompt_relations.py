"""What a prompt's words belong to: whose a color is, what is written, how many there are, who rides whom."""

from __future__ import annotations

import re

_GROUPS = frozenset(
    {
        "pair",
        "couple",
        "flock",
        "herd",
        "school",
        "group",
        "pack",
        "bunch",
        "handful",
        "crowd",
        "dozen",
        "field",
        "row",
    }
)
_NUMBERS = {
    "two": 2, "both": 2, "pair": 2, "couple": 2, "dos": 2, "deux": 2, "zwei": 2, "three": 3, "tres": 3,
    "trois": 3, "drei": 3, "four": 4, "cuatro": 4, "quatre": 4, "vier": 4, "five": 5, "cinco": 5, "cinq": 5,
    "fünf": 5, "six": 6, "seven": 7, "several": 4, "many": 7, "flock": 7, "herd": 5, "school": 7, "group": 5,
    "pack": 4, "bunch": 4, "handful": 4, "crowd": 7, "field": 7, "row": 5, "dozen": 7, "eight": 7, "nine": 7,
    "ten": 7, "some": 3,
}  # fmt: skip
_MOST = 7

# What a color right before it belongs to, by the role of the part that wears it.
WORN = {
    "hair": "hair", "haired": "hair", "beard": "beard", "bearded": "beard", "moustache": "beard",
    "scarf": "scarf", "bandana": "scarf", "collar": "scarf", "tie": "scarf",
    "hat": "hat", "cap": "hat", "beanie": "hat", "crown": "hat",
    "helmet": "helmet", "hardhat": "helmet", "apron": "apron", "stethoscope": "tool", "eyepatch": "patch",
    "patch": "patch",
    "eyes": "eye", "eye": "eye", "eyed": "eye", "glasses": "glasses", "sunglasses": "glasses",
    "dress": "coat", "coat": "coat", "jacket": "coat", "shirt": "coat", "t-shirt": "coat", "suit": "coat",
    "sweater": "coat", "hoodie": "coat", "kimono": "coat", "uniform": "coat", "cloak": "coat", "robe": "coat",
    "blouse": "coat", "armor": "coat", "skirt": "coat", "sail": "sail", "sails": "sail", "roof": "roof",
}  # fmt: skip

# Who is one when named twice in a row (`samurai warrior`), and what people do, which is no second one.
PEOPLE = frozenset(
    {"person", "woman", "child", "couple", "samurai", "knight", "wizard"} | {"astronaut", "dancer"}
)
DOING = frozenset({"dancing", "dance", "cycling", "sailing"})

# What lies between two subjects that touch, and what parts them again.
_LINKS = {
    "on": frozenset({"riding", "rides", "on", "atop", "upon"}),
    "hold": frozenset(
        {"holding", "holds", "carrying", "carries", "reading", "drinking", "eating", "playing"}
    ),
    "in": frozenset({"in", "inside", "into", "within"}),
    "at": frozenset({"at", "behind", "using"}),
}
_FULL = (["of"], ["full", "of"], ["filled", "with"])

# Words that tell of a face.
FACED = frozenset(
    {"hair", "haired", "beard", "bearded", "eyes", "eyed", "smiling", "smile", "freckles", "glasses", "lips"}
    | {"sunglasses", "moustache", "expression", "crying", "laughing", "blonde", "brunette", "redhead"}
)

_PARTED = frozenset(
    {"with", "and", "in", "by", "near", "under", "over", "at", "of", "behind", "hill", "table"}
)

BUSTS = {
    "person": "bust_man", "woman": "bust_woman", "child": "bust_woman", "dancer": "bust_woman",
    "couple": "bust_woman",
}  # fmt: skip

# Words after which a color is the whole image's.
_WHOLE = frozenset(
    {"sky", "skies", "light", "lights", "lighting", "tone", "tones", "toned", "palette", "theme", "themed"}
    | {"mood", "color", "colors", "colour", "colours", "colored", "coloured", "hue", "hues", "glow"}
    | {
        "glowing",
        "shade",
        "shades",
        "world",
        "atmosphere",
        "ambience",
        "filter",
        "scheme",
        "style",
        "scene",
        "haze",
    }
    | {"gradient", "art", "painting", "illustration", "picture", "image", "photo", "wallpaper", "texture"}
    | {"pattern", "and", "or", "in", "at", "on", "with", "over", "under", "by", "near", "of", "from", "for"}
    | {"to", "the", "a", "an", "y", "et", "und", "hour", "neon", "aesthetic", "vibes"}
)

# Words that name nothing to be seen: where all others are known, nothing in the prompt is strange.
SAID = _WHOLE | _PARTED | frozenset(
    {"simple", "plain", "clean", "empty", "blank", "solid", "minimal", "minimalist", "modern", "flat"}
    | {"vector", "beautiful", "nice", "cute", "high", "quality", "detailed", "realistic"}
    | {"render", "rendered", "stock", "large", "small", "big", "new", "one", "some", "this", "that"}
    | {"its", "size", "resolution", "design", "icon", "logo", "shot"}
)  # fmt: skip

_MARKS = '"\u201c\u201d\u00ab\u00bb\u300c\u300d'
_QUOTED = re.compile(f"[{_MARKS}]([^{_MARKS}]{{1,24}})[{_MARKS}]")
_SAID = re.compile(
    r"\b(?:says?|saying|reads?|reading|written|lettering|(?:the|with)\s+(?:words?|texts?|name|title|letters))"
    r"\s*:?\s*'?((?:[A-Z0-9][A-Z0-9!?&.'-]*)(?:\s+[A-Z0-9][A-Z0-9!?&.'-]*){0,3})(?![a-z])"
)


def letters(prompt: str) -> str:
    """What the prompt wants to be read in the image: quoted, or in capitals after `says`, `the word` …"""
    found = _QUOTED.search(prompt) or _SAID.search(prompt)
    text = found[1].strip(" .'") if found else ""
    return text if text.isascii() and text.isprintable() else ""


def count(before: list[str]) -> int | None:
    """The number that the words before a thing name; a word of groups counts only with an `of` after it."""
    for at in range(len(before) - 1, -1, -1):
        token = before[at]
        if token.isdecimal() and len(token) < 3:
            return max(1, min(_MOST, int(token)))
        if token in _GROUPS and "of" not in before[at + 1 :]:
            continue
        if token in _NUMBERS:
            return _NUMBERS[token]
    return None


def whole(following: str | None, known: bool) -> bool:
    """Whether a color before the word `following` is the image's own, and not an unknown thing's."""
    return following is None or known or following in _WHOLE


def link(between: list[str]) -> str | None:
    """How two things touch, by the last word between them that says so; `of`: one is full of the other."""
    if between in _FULL:
        return "of"
    for token in reversed(between):
        how = next((kind for kind, words in _LINKS.items() if token in words), None)
        if how is not None or token in _PARTED:
            return how
    return None
