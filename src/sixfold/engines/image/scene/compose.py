"""Composition: which place, light and layout a scene gets where the prompt leaves it open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sixfold.engines.image.scene import noise, shapes
from sixfold.engines.image.scene.prompt_parser import ParsedScene
from sixfold.engines.image.scene.stage import StageLayout

_HORIZON = {
    "mountains": 0.66, "lake": 0.58, "river": 0.60, "sea": 0.56, "beach": 0.50, "meadow": 0.58,
    "desert": 0.58, "harbour": 0.60,
    "snowfield": 0.62, "city": 0.70, "village": 0.62, "garden": 0.55, "forest": 0.62, "canyon": 0.60,
    "street": 0.56, "studio": 0.62,
    "moon": 0.64, "mars": 0.62, "volcano": 0.66, "interior": 0.62, "cave": 0.60,
}  # fmt: skip

# how high the light stands above the horizon, as a share of the sky
_LIGHT = {
    "day": (0.62, 0.84),
    "dawn": (0.10, 0.26),
    "sunset": (0.08, 0.24),
    "dusk": (-0.2, -0.1),
    "night": (0.55, 0.82),
}

_OPEN = ("mountains", "sea", "lake", "meadow", "beach", "desert")
# places that yield to another when both are named
_YIELD = ("interior", "meadow", "river", "garden", "snowfield")

# what settles the place before anybody who is there too
_LANDMARKS = ("bridge", "castle", "lighthouse", "windmill", "temple", "church", "ship", "train")
# and what is only to be met in its own place
_AT_HOME = ("firetruck", "tractor", "bus", "stall", "ferris")

# what two places make together, the first pair that fits
_JOINED = (
    ({"studio"}, "studio"),
    ({"underwater"}, "underwater"),
    ({"cave"}, "cave"),
    ({"street"}, "street"),
    ({"harbour", "city"}, "city"),
    ({"harbour"}, "harbour"),
    ({"mountains", "lake"}, "lake"),
    ({"mountains", "sea"}, "lake"),
    ({"mountains", "river"}, "river"),
    ({"mountains", "village"}, "village"),
    ({"mountains", "desert"}, "desert"),
    ({"mountains", "snowfield"}, "snowfield"),
    ({"forest", "lake"}, "lake"),
    ({"forest", "river"}, "river"),
    ({"sea", "city"}, "city"),
    ({"village", "sea"}, "harbour"),
    ({"village", "beach"}, "harbour"),
    ({"beach", "sea"}, "beach"),
)


@dataclass(frozen=True, slots=True)
class SceneComposition:
    """The settled choices: place, second place, time, weather and layout."""

    place: str
    other: str | None
    time: str
    weather: str
    layout: StageLayout


def _place(scene: ParsedScene, rng: np.random.Generator) -> tuple[str, str | None]:
    places = [p for p in scene.places if p not in scene.avoid]
    framed = scene.frame is not None or (scene.letters and not scene.subjects)
    if (not places and framed) or (scene.frame == "icon" and (scene.subjects or scene.letters)):
        return "studio", None
    homes = [h for s in scene.subjects for h in shapes.library()[s.name].home if h not in scene.avoid]
    if places:
        joined = next((to for pair, to in _JOINED if pair <= set(places)), None)
        ordered = sorted(places, key=lambda p: p in _YIELD)
        return joined or ordered[0], next((p for p in ordered[1:]), None)
    if homes:
        first = [
            s
            for s in scene.subjects
            if shapes.library()[s.name].stand in shapes.INDOORS or s.name in (*_LANDMARKS, *_AT_HOME)
        ]
        return next((h for s in first for h in shapes.library()[s.name].home if h in homes), homes[0]), None
    options = [p for p in _OPEN if p not in scene.avoid] or ["mountains"]
    return options[int(rng.integers(len(options)))], None


def _time(scene: ParsedScene, place: str, rng: np.random.Generator) -> str:
    if place == "studio" and scene.time != "night":
        return "day"
    if scene.time:
        return scene.time
    for subject in scene.subjects:
        wanted = shapes.library()[subject.name].time
        if wanted and wanted not in scene.avoid:
            return wanted
    if {"cyberpunk", "vaporwave", "noir"} & set(scene.styles) or "neon" in scene.colors:
        return "dusk" if "vaporwave" in scene.styles else "night"
    if place in ("space", "moon", "mars"):
        return "night"
    if place == "studio":
        return "day"
    options = [t for t in ("day", "day", "sunset", "dawn", "day") if t not in scene.avoid] or ["day"]
    return options[int(rng.integers(len(options)))]


def _weather(scene: ParsedScene, place: str, time: str) -> str:
    if place in ("space", "moon", "mars", "studio"):
        return "clear"
    if scene.weather:
        return scene.weather
    if time == "night":
        return "clear"
    return "clear" if "cloudy" in scene.avoid else "fair"


def plan(scene: ParsedScene, seed: int, shape: tuple[int, int]) -> SceneComposition:
    """Settle what the prompt left open, by the seed."""
    rng = noise.stream(seed, "plan")
    place, other = (
        _place(scene, rng) if scene.known and "abstract" not in scene.styles else ("abstract", None)
    )
    time = _time(scene, place, rng)
    weather = _weather(scene, place, time)
    horizon = _HORIZON.get(place, 0.60) + float(rng.uniform(-0.03, 0.03))
    if shape[0] > shape[1] * 1.2:
        horizon += 0.04
    third = (0.32, 0.68)[int(rng.integers(2))]
    low, high = _LIGHT[time]
    light_y = horizon * (1 - float(rng.uniform(low, high)))
    subject_x = float(np.clip(1 - third + rng.normal(0, 0.02), 0.25, 0.75))
    if place == "studio" or scene.frame == "portrait":
        subject_x = 0.5
    elif place == "interior":
        subject_x = 0.5 + (subject_x - 0.5) * 0.55
    layout = StageLayout(
        horizon, (third + float(rng.uniform(-0.06, 0.06)), light_y), subject_x, bool(rng.random() < 0.5)
    )
    return SceneComposition(place, other, time, weather, layout)
