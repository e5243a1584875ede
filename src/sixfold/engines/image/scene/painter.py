"""Painter of a float image from a parsed scene and a seed."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
import numpy as np
from msgspec.structs import replace

from sixfold.engines.image.scene import (
    abstract,
    canvas,
    city,
    environments,
    finishing,
    interiors,
    layout,
    noise,
    plants,
    shapes,
    sky,
    street,
    studio,
    styles,
    terrain,
)
from sixfold.engines.image.scene import subjects as scene_subjects
from sixfold.engines.image.scene.canvas import Image
from sixfold.engines.image.scene.finishing import AS_IT_IS, RenderQuality
from sixfold.engines.image.scene.prompt_parser import ParsedScene
from sixfold.engines.image.scene.stage import SceneStage, choose_palette, indoor_palette

Painter = Callable[[SceneStage], None]

# Color of the bank in the foreground, by place.
_BANKS = {"lake": "#5f7a36", "river": "#5f7a36", "sea": "#6f675c", "harbour": "#6f675c", "city": "#6d7078"}

# Wall colors of the houses in a harbor.
_WALLS = (None, None, "white", "red", "yellow", "blue")


def _bank(stage: SceneStage) -> None:
    """Add firm ground in front of water, if a subject needs to stand on it."""
    library = shapes.library()
    needed = any(library[s.name].stand in ("ground", "table") for s in stage.scene.subjects)
    if not needed or stage.place not in _BANKS:
        return
    rng = stage.rng("bank")
    height, width = stage.shape
    paved = stage.place == "city"
    wander = noise.fbm(rng, (1, width), (1, 5), 5)[0] * np.float32(0.0 if paved else 0.014)
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    mask = noise.smoothstep(-0.002, 0.006, y - np.float32(0.845) - wander[None, :])
    cells = (60.0, 4.0) if paved else (height / 8, width / 14)
    rough = noise.fbm(rng, stage.shape, cells, 4, 0.6)
    tone = canvas.rgb("#e4ebf2") if stage.is_wintry else canvas.rgb(_BANKS[stage.place])
    paint = stage.palette.lit(tone, 0.5) * (0.95 + 0.16 * rough - 0.9 * (y - np.float32(0.9)))[..., None]
    if paved:
        paint = paint * np.float32(0.72) + stage.image[::-1] * np.float32(0.28)
    stage.add_layer(np.clip(paint, 0, 1), mask, 0.09)
    if stage.water is not None:
        stage.water = stage.water * (1 - mask)


def _country(kind: str) -> Painter:
    def paint(stage: SceneStage) -> None:
        sky.paint(stage)
        terrain.render(stage, kind)
        terrain.paint_water(stage)
        _bank(stage)

    return paint


def _beach(stage: SceneStage) -> None:
    sky.paint(stage)
    terrain.render(stage, "beach")
    terrain.paint_water(stage)
    terrain.paint_shore(stage)


def _meadow(stage: SceneStage) -> None:
    sky.paint(stage)
    terrain.render(stage, stage.place)
    text = stage.scene.prompt.casefold()
    blooming = stage.place == "garden" or stage.scene.season in ("spring", "summer")
    if blooming or any(word in text for word in ("flower", "lavender", "tulip", "poppy", "poppies")):
        plants.flower_field(stage, stage.horizon + stage.height * 0.06)
    if "cactus" not in stage.scene.prompt:
        side = 0.10 if stage.layout.subject_x > 0.5 else 0.90
        plants.tree(stage, stage.width * side, stage.height * 0.90, stage.height * 0.52, 0.12)


def _clearing(stage: SceneStage) -> Image:
    """Return the number of rows by which the firs of each column sink, to reveal subjects among them."""
    library = shapes.library()
    count = sum(s.count for s in stage.scene.subjects if library[s.name].stand in ("ground", "table"))
    x = np.linspace(0, 1, stage.width, dtype=np.float32)
    at, reach = (stage.layout.subject_x, 0.24) if count == 1 else (0.5, 0.5)
    hole = np.exp(-(((x - np.float32(at)) / np.float32(reach)) ** 4)) if count else np.zeros_like(x)
    return hole * np.float32(stage.height * 0.26)


def _mountains(stage: SceneStage) -> None:
    sky.paint(stage)
    terrain.render(stage, stage.place)
    line = np.full(stage.width, stage.height * 1.0, np.float32) + noise.fbm(
        stage.rng("ledge"), (1, stage.width), (1, 3), 4
    )[0] * np.float32(stage.height * 0.03)
    line += _clearing(stage)
    plants.conifer_row(
        stage, line - stage.height * 0.03, (stage.unit * 8, stage.unit * 22), stage.unit * 6.2, 0.22, "firs"
    )


def _city(stage: SceneStage) -> None:
    sky.paint(stage)
    city.skyline(stage)
    terrain.paint_water(stage)
    _bank(stage)


def _village(stage: SceneStage) -> None:
    sky.paint(stage)
    terrain.render(stage, "village")
    rng = stage.rng("houses")
    spots = sorted((float(rng.uniform(0.0, 1.0)), float(rng.uniform(0.05, 0.24))) for _ in range(9))
    for x, down in sorted(spots, key=lambda spot: spot[1]):
        foot = stage.horizon + stage.height * down
        tall = stage.height * (0.05 + 0.45 * down)
        name = "house" if rng.random() < 0.8 else "church"
        scene_subjects.draw(
            stage,
            name if name in shapes.library() else "house",
            scene_subjects.SubjectSpot(
                x * stage.width, foot, tall, bool(rng.random() < 0.5), 0.5 - down * 1.5
            ),
        )
    side = 0.92 if stage.layout.subject_x < 0.5 else 0.08
    plants.tree(stage, stage.width * side, stage.height * 0.92, stage.height * 0.46, 0.12)


def _harbour(stage: SceneStage) -> None:
    """Paint houses along the water's edge in two rows, with small houses behind the rows."""
    sky.paint(stage)
    terrain.render(stage, "lake")
    wet = np.zeros(stage.shape, bool) if stage.water is None else stage.water > 0.5
    edge = np.where(wet.any(0), wet.argmax(0), int(stage.horizon))
    rng = stage.rng("houses")
    for row, tall in ((1, 0.085), (0, 0.11)):
        x = float(rng.uniform(-0.02, 0.03))
        while x < 1:
            high = tall * float(rng.uniform(0.8, 1.2)) * stage.height
            foot = float(edge[min(int(x * stage.width), stage.width - 1)]) - row * tall * 0.45 * stage.height
            name = "church" if row and rng.random() < 0.12 else "house"
            wall = _WALLS[int(rng.integers(len(_WALLS)))] if name == "house" else None
            scene_subjects.draw(
                stage,
                name,
                scene_subjects.SubjectSpot(
                    x * stage.width, foot, high, bool(rng.random() < 0.5), 0.42 + 0.04 * row
                ),
                wall,
                grounded=False,
            )
            x += float(rng.uniform(0.9, 1.6)) * high / stage.width
    terrain.paint_water(stage)
    _bank(stage)


def _interior(stage: SceneStage) -> None:
    environments.interior(stage)
    interiors.furnish(stage)


def _moon(stage: SceneStage) -> None:
    environments.space(stage)
    terrain.render(stage, stage.place)


def _cave(stage: SceneStage) -> None:
    inner = stage.scene.places
    sky.paint(stage)
    terrain.render(stage, next((p for p in inner if p in terrain.lands()), "lake"))
    terrain.paint_water(stage)
    environments.cave(stage)


PLACES: dict[str, Painter] = {
    "mountains": _mountains, "lake": _country("lake"), "river": _country("river"), "sea": _country("sea"),
    "beach": _beach, "meadow": _meadow, "garden": _meadow, "desert": _country("desert"),
    "snowfield": _mountains, "city": _city, "village": _village, "harbour": _harbour, "forest": plants.forest,
    "canyon": _country("canyon"),
    "volcano": environments.volcano, "space": environments.space, "moon": _moon, "mars": _moon,
    "underwater": environments.underwater,
    "interior": _interior, "cave": _cave, "street": street.paint, "studio": studio.paint,
    "abstract": abstract.paint,
}  # fmt: skip

# Places that can be painted as isometric models.
_ISOMETRIC = ("city", "interior")
# Subjects that cast a shadow where they stand.
_GROUNDED = ("ground", "water", "table", "shore", "back")
_AIRLESS = ("space", "moon", "mars")
# Places without plants in front of the subjects, and without weather.
_WITHOUT_FRONT = ("abstract", "studio")
_OFF_ROAD = (
    "mountains",
    "meadow",
    "garden",
    "desert",
    "snowfield",
    "village",
    "canyon",
    "volcano",
    "lake",
    "river",
)


def _road(stage: SceneStage) -> None:
    """Add asphalt under vehicles."""
    names = {subject.name for subject in stage.scene.subjects} & {
        "car",
        "truck",
        "bus",
        "firetruck",
        "motorcycle",
        "bicycle",
    }
    if not names or stage.place not in _OFF_ROAD:
        return
    height, width = stage.shape
    rng = stage.rng("asphalt")
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    wander = noise.fbm(rng, (1, width), (1, 2), 3)[0][None, :] * np.float32(0.006)
    mask = noise.smoothstep(0.848, 0.856, y - wander) * (1 - noise.smoothstep(0.985, 0.995, y - wander))
    grain = noise.fbm(rng, stage.shape, (height / 3, width / 6), 3, 0.6)
    paint = stage.palette.lit(canvas.rgb("#5b5d63"), 0.42) * (1 + 0.08 * grain)[..., None]
    stage.add_layer(np.clip(paint, 0, 1), mask, 0.12)
    x = np.linspace(0, 1, width, dtype=np.float32)[None, :] * np.float32(width / stage.unit / 14) % 1.0
    line = (np.abs(y - wander - 0.957) < 0.005) * (x < 0.55) * np.float32(0.75)
    stage.add_layer(stage.palette.lit(canvas.rgb("#efe9d8"), 0.5), line, 0.12)


def subjects(stage: SceneStage, movers: Collection[str] = ()) -> list[layout.Placed]:
    """Draw the scene's subjects, farthest first; return those named in `movers`, which are not drawn."""
    _road(stage)
    moving: list[layout.Placed] = []
    for subject, number, spot in layout.place_subjects(stage):
        if subject.name in movers:
            moving.append((subject, number, spot))
            continue
        if subject.name == "tree":
            plants.tree(stage, spot.x, spot.foot, spot.height, spot.depth, "subject")
            continue
        _subject(stage, (subject, number, spot))
        if subject.name == "signboard" and stage.scene.letters:
            wide, high = spot.height * 0.66, spot.height * 0.45
            middle = spot.foot - spot.height * 0.62
            box = (spot.x - wide, middle - high / 2, spot.x + wide, middle + high / 2)
            studio.letter(stage, box, stage.palette.lit(canvas.rgb("#b98650"), 0.5))
    if stage.place == "studio":
        studio.write(stage)
    stage.step("subject")
    return moving


def _subject(stage: SceneStage, placed: layout.Placed) -> Image | None:
    subject, number, spot = placed
    floating = stage.place in ("space", "underwater") or stage.scene.frame is not None
    grounded = shapes.library()[subject.name].stand in _GROUNDED and spot.cut is None and not floating
    return scene_subjects.draw(stage, subject.name, spot, subject.color, grounded, dressed=number == 0)


def _foreground(stage: SceneStage) -> None:
    """Add plants and birds that frame the image."""
    if stage.place in ("meadow", "garden", "village", "lake", "river"):
        plants.grass(stage, 0.6, stage.unit * 10, flowers=stage.place in ("garden", "meadow"))
    if (
        stage.place in ("sea", "harbour", "beach", "lake", "mountains", "desert", "canyon")
        and stage.time != "night"
        and stage.weather in ("fair", "clear")
    ):
        sky.flock(stage, 6, (1 - stage.layout.light[0], stage.layout.horizon * 0.45), 1.5)
    sky.petals(stage)


def paint(
    scene: ParsedScene,
    look: str,
    seed: int,
    shape: tuple[int, int],
    step: Callable[[str], None],
    effort: RenderQuality = AS_IT_IS,
) -> Image:
    """Return a finished image of `shape` (height, width), float RGB from 0 to 1."""
    stage = stage_scene(scene, look, seed, shape, step)
    finish(stage)
    return effort.apply(stage.image)


def stage_scene(
    scene: ParsedScene, look: str, seed: int, shape: tuple[int, int], step: Callable[[str], None]
) -> SceneStage:
    """Return the painted scene with its depth, before light and look are applied."""
    stage = _stage_place(scene, look, seed, shape, step)
    subjects(stage)
    _front(stage, lightning=True)
    return stage


class PaintedMover(msgspec.Struct, frozen=True):
    """A subject that was painted apart from its scene; `alpha` (0 to 1) includes its shadow or reflection."""

    name: str
    spot: scene_subjects.SubjectSpot
    alpha: Image


class MovingScene(msgspec.Struct, frozen=True):
    """A scene without its movers, and the same scene with them and without the plants in front.

    `ground` is the depth of the scene without movers and plants.
    """

    base: SceneStage
    full: SceneStage
    ground: Image
    movers: tuple[PaintedMover, ...]


def stage_moving_scene(
    scene: ParsedScene,
    look: str,
    seed: int,
    shape: tuple[int, int],
    step: Callable[[str], None],
    names: Collection[str],
) -> MovingScene:
    """Return a scene whose subjects with these names are painted apart, without lightning."""
    base = _stage_place(scene, look, seed, shape, step)
    placed = subjects(base, names)
    full = replace(base, image=base.image.copy(), depth=base.depth.copy()) if placed else base
    ground = base.depth.copy()
    movers: list[PaintedMover] = []
    for subject, number, spot in placed:
        # All face in one direction, so that they do not collide.
        spot = replace(spot, flip=placed[0][2].flip)
        before = full.image.copy()
        mask = _subject(full, (subject, number, spot))
        if mask is not None:
            change = np.clip(np.abs(full.image - before).max(-1) * 3, 0, 0.8).astype(np.float32)
            movers.append(PaintedMover(subject.name, spot, np.maximum(mask, change)))
    if movers and full.place not in _WITHOUT_FRONT:
        sky.apply_weather(full, lightning=False)
    _front(base, lightning=False)
    return MovingScene(base, full, ground, tuple(movers))


def _front(stage: SceneStage, *, lightning: bool) -> None:
    if stage.place not in _WITHOUT_FRONT:
        _foreground(stage)
        sky.apply_weather(stage, lightning=lightning)


def _stage_place(
    scene: ParsedScene, look: str, seed: int, shape: tuple[int, int], step: Callable[[str], None]
) -> SceneStage:
    composition = layout.compose(scene, seed, shape)
    stage = SceneStage(
        scene=scene,
        look=look,
        time=composition.time,
        weather=composition.weather,
        place=composition.place,
        palette=indoor_palette()
        if composition.place == "studio"
        else choose_palette(
            composition.time, composition.weather, seed, airless=composition.place in _AIRLESS
        ),
        layout=composition.layout,
        image=np.zeros((*shape, 3), np.float32),
        depth=np.ones(shape, np.float32),
        seed=seed,
        step=step,
    )
    isometric = stage.place in _ISOMETRIC and "isometric" in scene.prompt.casefold()
    (interiors.isometric if isometric else PLACES[stage.place])(stage)
    return stage


def finish(stage: SceneStage, *, falling: bool = True) -> None:
    """Apply light, look and style; with `falling` also rain or snow, which a video animates itself."""
    styles.grade(stage)
    printed = stage.look == "create_image_klein"
    if printed and falling:
        sky.precipitation(stage)
    finishing.finish(stage)
    if falling and not printed:
        sky.precipitation(stage)
    styles.apply(stage)
    if stage.scene.frame == "icon" and stage.place != "studio":
        mask = studio.tile_mask(stage)
        stage.image = 1 - (1 - stage.image) * mask[..., None]
    stage.step("finish")
