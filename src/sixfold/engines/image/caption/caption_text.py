"""Captions with a guess at the kind of image and plain statements about its measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sixfold.engines.image.caption.measure import ImageFacts

_COUNTS = ("no", "one", "two", "three", "four", "five", "six")


def _is_sky(hsv: tuple[float, float, float]) -> bool:
    hue, saturation, value = hsv
    return 180 <= hue <= 250 and saturation > 0.12 and value > 0.45


def _is_green(hsv: tuple[float, float, float]) -> bool:
    return 65 <= hsv[0] <= 165 and hsv[1] > 0.15


def _is_warm(hsv: tuple[float, float, float]) -> bool:
    return (hsv[0] <= 50 or hsv[0] >= 320) and hsv[1] > 0.3 and hsv[2] > 0.35


def _is_warm_sky(facts: ImageFacts) -> bool:
    # A sky has similar colors from left to right; flowers and tables in front of other things do not.
    return _is_warm(facts.upper) and facts.upper_spread < 0.45


# Kinds of images with their conditions; the first kind whose condition holds is used.
_KINDS: Sequence[tuple[str, Callable[[ImageFacts], bool]]] = (
    ("an empty plane of one colour", lambda f: len(f.palette) == 1 and f.contrast < 0.03),
    ("a cut-out on a transparent ground", lambda f: f.transparent > 0.15),
    ("a portrait", lambda f: f.largest_face > 0.06),
    ("a group of people", lambda f: len(f.faces) > 2),
    ("a picture with people", lambda f: len(f.faces) > 0),
    ("a page of text", lambda f: f.lettering >= 6 and f.light > 0.6 and f.colorfulness < 0.35),
    ("a graphic with lettering", lambda f: f.lettering >= 1 and f.flatness > 0.55),
    ("a night scene", lambda f: f.light < 0.2),
    ("a flat graphic", lambda f: f.flatness > 0.8),
    ("a landscape under a warm sky", lambda f: _is_warm_sky(f) and f.upper[2] > f.lower[2] + 0.12),
    ("a landscape under a blue sky", lambda f: _is_sky(f.upper) and _is_green(f.lower)),
    ("a view of water under the sky", lambda f: _is_sky(f.upper) and _is_sky(f.lower)),
    ("an outdoor scene under the sky", lambda f: _is_sky(f.upper) and f.upper[2] > f.lower[2]),
    ("a scene of greenery", lambda f: _is_green(f.upper) and _is_green(f.lower)),
    ("a bright, pale scene", lambda f: f.light > 0.75 and f.colorfulness < 0.25),
    ("a dark scene", lambda f: f.light < 0.32),
    ("a close, warm scene", lambda f: _is_warm(f.upper) and _is_warm(f.lower)),
    ("a picture", lambda _f: True),
)


def kind(facts: ImageFacts) -> str:
    """Return the first kind of image whose condition the facts meet."""
    return next(name for name, fits in _KINDS if fits(facts))


def shape(facts: ImageFacts) -> str:
    """Return "square", "wide" or "tall"."""
    ratio = facts.width / facts.height
    return "square" if 0.95 < ratio < 1.05 else "wide" if ratio > 1 else "tall"


def light(facts: ImageFacts) -> str:
    return next(word for limit, word in _LIGHTS if facts.light <= limit)


def focus(facts: ImageFacts) -> str:
    return "blurred" if facts.sharpness < 0.25 else "soft" if facts.sharpness < 0.5 else "sharp"


def caption(facts: ImageFacts) -> str:
    """Return a caption of two or three sentences."""
    colors = _join([color.name for color in facts.palette[:3]])
    guess = kind(facts)
    first = f"{guess[0].upper()}{guess[1:]}, {shape(facts)} and {light(facts)}, in {colors}."
    parts = [first]
    if facts.faces:
        parts.append(_sentence(len(facts.faces), "face is", "faces are"))
    # A single line is often a fence or a row of windows.
    if facts.lettering > 1 or "lettering" in guess:
        parts.append(_sentence(facts.lettering, "line of lettering is", "lines of lettering are"))
    if len(facts.palette) > 1:
        parts.append(f"It is {focus(facts)}, and its contrast is {_strength(facts.contrast)}.")
    return " ".join(parts)


_LIGHTS = ((0.2, "very dark"), (0.38, "dark"), (0.62, "evenly lit"), (0.82, "bright"), (1.0, "very bright"))


def _strength(contrast: float) -> str:
    return "low" if contrast < 0.25 else "moderate" if contrast < 0.5 else "strong"


def _sentence(count: int, singular: str, many: str) -> str:
    number = _COUNTS[count] if count < len(_COUNTS) else str(count)
    return f"{number.capitalize()} {singular if count == 1 else many} to be seen."


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
