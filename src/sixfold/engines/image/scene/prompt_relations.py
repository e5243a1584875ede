"""Relations between the words of a prompt: colors and their subjects, lettering, numbers, positions."""

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
_MAX_COUNT = 7

# Words to which the color directly before them belongs, by the role of the worn part.
WORN_ROLES = {
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

# People who are one subject when named twice in a row (`samurai warrior`), and activities.
PEOPLE = frozenset(
    {"person", "woman", "child", "couple", "samurai", "knight", "wizard"} | {"astronaut", "dancer"}
)
ACTIVITIES = frozenset({"dancing", "dance", "cycling", "sailing"})

# Words that link two subjects, by relation.
_LINKS = {
    "on": frozenset({"riding", "rides", "on", "atop", "upon"}),
    "hold": frozenset(
        {"holding", "holds", "carrying", "carries", "reading", "drinking", "eating", "playing"}
    ),
    "in": frozenset({"in", "inside", "into", "within"}),
    "at": frozenset({"at", "behind", "using"}),
}
# All words that link two subjects.
LINK_WORDS = frozenset(word for words in _LINKS.values() for word in words)
_FULL = (["of"], ["full", "of"], ["filled", "with"])

# Words that describe a face.
FACE_WORDS = frozenset(
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

# Words after which a color applies to the whole image.
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

# Words that name nothing visible, so they do not count as unknown.
IGNORED_WORDS = _WHOLE | _PARTED | frozenset(
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
    """Return the lettering for the image: quoted, or in capitals after `says` or `the word`; "" if absent."""
    match = _QUOTED.search(prompt) or _SAID.search(prompt)
    text = match[1].strip(" .'") if match else ""
    return text if text.isascii() and text.isprintable() else ""


def count(before: list[str]) -> int | None:
    """Return the number named before a subject, or None; a group word counts only if `of` follows it."""
    for at in range(len(before) - 1, -1, -1):
        token = before[at]
        if token.isdecimal() and len(token) < 3:
            return max(1, min(_MAX_COUNT, int(token)))
        if token in _GROUPS and "of" not in before[at + 1 :]:
            continue
        if token in _NUMBERS:
            return _NUMBERS[token]
    return None


def is_number(token: str) -> bool:
    """Return whether a word is a number in digits or in letters."""
    return token.isdecimal() or token in _NUMBERS


def is_drawn_number(token: str) -> bool:
    """Return whether a word is a number small enough that the scene draws that many copies."""
    if token.isdecimal():
        return len(token) < 3 and int(token) <= _MAX_COUNT
    return token in _NUMBERS and token not in {"eight", "nine", "ten", "dozen"}


def is_whole_image(following: str | None, known: bool) -> bool:
    """Return whether a color before the word `following` applies to the whole image.

    `known` is True if the word is recognized.
    """
    return following is None or known or following in _WHOLE


def link(between: list[str]) -> str | None:
    """Return the relation of two subjects, by the last linking word, or None.

    The relation `of` means that the first subject is filled with the second.
    """
    if between in _FULL:
        return "of"
    for token in reversed(between):
        how = next((kind for kind, words in _LINKS.items() if token in words), None)
        if how is not None or token in _PARTED:
            return how
    return None
