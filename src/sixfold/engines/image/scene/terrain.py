"""Terrain as a height field in perspective (ridges, dunes, hills, shores), and water."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

import cv2
import msgspec
import numpy as np

from sixfold.engines.image.scene import noise
from sixfold.engines.image.scene.canvas import Color, Image, glow, mix, over, ramp, rgb, saturate
from sixfold.engines.image.scene.stage import SceneStage

_TILE = 512
_STEPS = 640
_NEAR, _FAR = 1.0, 42.0


class TerrainKind(msgspec.Struct, frozen=True):
    """A kind of terrain; `lands.toml` describes the fields."""

    amplitude: float
    ridged: float
    cells: int
    start: float
    full: float
    floor: float
    roughness: float
    valley: float
    trees: float
    tones: list[str]
    snowline: float
    water: float | None = None
    steep: float = 1.0
    terrace: float = 0.0
    haze: float = 1.0
    river: float = 0.0


@cache
def lands() -> dict[str, TerrainKind]:
    """Return every kind of terrain by name."""
    text = resources.files("sixfold.engines.image.scene").joinpath("lands.toml").read_text("utf-8")
    return {name: TerrainKind(**entry) for name, entry in tomllib.loads(text).items()}


_SEASON = {
    "autumn": ("#a8893c", "#b0622a", None, None),
    "winter": ("#e8eef5", "#c3cfdb", None, "#f8fbff"),
    "spring": ("#8fb84a", "#69993f", None, None),
}


def _height_tile(land: TerrainKind, rng: np.random.Generator) -> Image:
    smooth = noise.tile(rng, _TILE, land.cells, 7, 0.42 + land.roughness * 0.12)
    if land.ridged <= 0:
        return smooth * np.float32(0.5) + np.float32(0.5)
    ridged = noise.ridged_tile(rng, _TILE, land.cells)
    field = ridged * np.float32(land.ridged) + (smooth * np.float32(0.5) + np.float32(0.5)) * np.float32(
        1 - land.ridged
    )
    if land.roughness < 0.3:
        field = _wrapped_blur(field, 3.2)
    if land.terrace:
        steps = 7.0
        level = field * steps
        whole = np.floor(level)
        field = (whole + noise.smoothstep(0.62, 1.0, level - whole)) / np.float32(steps)
    return _wrapped_blur(field.astype(np.float32), 1.3)


def _wrapped_blur(field: Image, sigma: float) -> Image:
    padded = cv2.copyMakeBorder(field, 16, 16, 16, 16, cv2.BORDER_WRAP)
    return np.ascontiguousarray(cv2.GaussianBlur(padded, (0, 0), sigma)[16:-16, 16:-16])


def _shadow(tile: Image, towards: tuple[float, float], slope: float) -> Image:
    """Return the fraction of direct light that reaches each point of a height tile (0 shadow, 1 lit)."""
    blocked = np.zeros_like(tile)
    for k in (2, 4, 7, 11, 16, 23, 32, 44, 58):
        moved = np.roll(tile, (round(towards[1] * k), round(towards[0] * k)), (0, 1))
        np.maximum(blocked, moved - tile - np.float32(slope * k), out=blocked)
    return 1 - noise.smoothstep(0.0, 0.05, blocked)


class TerrainRelief:
    """A height field seen in perspective: the land's coordinates for every pixel."""

    def __init__(self, stage: SceneStage, land: TerrainKind, name: str) -> None:
        self.stage, self.land = stage, land
        self.rng = stage.rng(name)
        self.tile = _height_tile(land, self.rng)
        self.offset = self.rng.random(2)
        self.focal = 0.95 * max(stage.height, stage.width * 0.8)
        self.z = (_NEAR * (_FAR / _NEAR) ** np.linspace(0, 1, _STEPS)).astype(np.float32)
        self.scale = 1 / 36.0
        self._trace()

    def _world(self, x: Image, z: Image) -> tuple[Image, Image]:
        u = x * np.float32(self.scale) + np.float32(self.offset[0])
        v = z * np.float32(self.scale) + np.float32(self.offset[1])
        return u, v

    def envelope(self, x: Image, z: Image) -> Image:
        """Return the fraction of the amplitude at (x, z): low nearby and in the valley."""
        land = self.land
        rise = noise.smoothstep(land.start, land.full, z)
        center = (self.stage.layout.light[0] - 0.5) * 0.6 * z
        side = np.abs(x - center) / (z * np.float32(0.55) + 1.2)
        return rise * (
            1 - np.float32(land.valley) + np.float32(land.valley) * noise.smoothstep(0.0, 1.0, side)
        )

    def heights(self, x: Image, z: Image) -> Image:
        """Return ground heights above the valley floor."""
        u, v = self._world(x, z)
        raw = noise.sample(self.tile, u, v)
        carve = self._river(x, z) if self.land.river else np.float32(0)
        return (
            raw * self.envelope(x, z) * np.float32(self.land.amplitude)
            + np.float32(self.land.floor)
            + (noise.sample(self.tile, u * 5, v * 5) - np.float32(0.5))
            * np.float32(0.05 + 0.12 * self.land.roughness)
            - carve
        )

    def _river(self, x: Image, z: Image) -> Image:
        """Return the depth that a winding river cuts at (x, z)."""
        turn = np.float32(self.offset[0] * 6)
        aim = np.float32((self.stage.layout.light[0] - 0.5) * 0.5)
        bend = np.sin(z * np.float32(0.33) + turn) * np.clip(z * np.float32(0.16), 0.15, 2.6) + aim * z
        across = np.abs(x - bend) / np.float32(self.land.river * 1.0) / (1 + z * np.float32(0.035))
        return (1 - noise.smoothstep(0.7, 1.5, across)) * np.float32(0.55 + 0.9)

    def _trace(self) -> None:
        stage, land = self.stage, self.land
        height, width = stage.shape
        columns = (np.arange(width, dtype=np.float32) - np.float32(width / 2)) / np.float32(self.focal)
        z = np.broadcast_to(self.z[:, None], (_STEPS, width))
        x = columns[None, :] * z
        ground = self.heights(np.ascontiguousarray(x), np.ascontiguousarray(z))
        if land.trees and stage.look != "none":
            ground = ground + self._canopy(x, z, ground)
        if land.water is not None:
            ground = np.maximum(ground, np.float32(land.water))
        row = np.float32(stage.horizon) + np.float32(self.focal) * (1 - ground) / z
        self._fill(np.maximum.accumulate(np.float32(height - 1) - row, axis=0))

    def _canopy(self, x: Image, z: Image, ground: Image) -> Image:
        """Return the height of trees where the land is not steep, high or wet."""
        land = self.land
        spikes = noise.tile(self.rng, 256, 64, 2, 0.6)
        fine = noise.sample(spikes, x * np.float32(0.62), z * np.float32(0.62))
        patches = noise.sample(
            self.tile, x * np.float32(self.scale * 2.2) + 0.3, z * np.float32(self.scale * 2.2) + 0.7
        )
        where = noise.smoothstep(0.40, 0.56, patches + np.float32(land.trees * 0.24 - 0.12))
        low = 1 - noise.smoothstep(0.30, 0.55, (ground - land.floor) / np.float32(max(land.amplitude, 1)))
        dry = noise.smoothstep(0.02, 0.12, ground - (land.water or -9.0)) if land.water is not None else 1.0
        far = noise.smoothstep(4.0, 9.0, z)
        return np.clip(fine + 0.15, 0, 1) * where * low * dry * far * np.float32(0.40 * land.trees)

    def _fill(self, crest: Image) -> None:
        """Compute the depth per pixel by inverting each column's running crest."""
        height, width = self.stage.shape
        rows = np.arange(height, dtype=np.float32)
        order = np.empty((height, width), np.float32)
        steps = np.arange(_STEPS, dtype=np.float32)
        top = np.ascontiguousarray(crest.T)
        for column in range(width):
            order[:, column] = np.interp(rows, top[column], steps)
        order = order[::-1]
        skyline = crest[-1]
        up = (height - 1 - np.arange(height, dtype=np.float32))[:, None]
        self.mask = np.clip(skyline[None, :] - up + 0.5, 0, 1)
        self.top = max(0, int(height - 1 - float(skyline.max())) - 1)
        order = order[self.top :]
        self.depth_z = np.float32(_NEAR) * np.exp(order * np.float32(np.log(_FAR / _NEAR) / (_STEPS - 1)))
        across = (np.arange(width, dtype=np.float32) - np.float32(width / 2)) / np.float32(self.focal)
        self.x = across[None, :] * self.depth_z
        self.mask = self.mask[self.top :]


def _light_direction(stage: SceneStage) -> tuple[float, float, float]:
    """Return the direction to the light (x, up, z); backlight is moved to the side to show relief."""
    side = 1.0 if stage.layout.light[0] >= 0.5 else -1.0
    height = {"day": 0.75, "night": 0.60, "dawn": 0.34, "sunset": 0.30, "dusk": 0.26}[stage.time]
    vector = np.array([side * 0.9, height, 0.10])
    vector /= np.linalg.norm(vector)
    return float(vector[0]), float(vector[1]), float(vector[2])


def _tones(stage: SceneStage, land: TerrainKind) -> list[Color]:
    base: list[str] = list(land.tones)
    season = (
        "winter"
        if stage.weather == "snow" and stage.place not in ("desert", "moon", "mars")
        else stage.scene.season
    )
    if stage.place not in ("desert", "moon", "mars", "canyon", "snowfield", "volcano"):
        for index, color in enumerate(_SEASON.get(season or "", ())):
            if color and not (stage.place == "beach" and index == 0):
                base[index] = color
    low, green, rock, cap = (rgb(text) for text in base)
    if land.water is not None and stage.place != "beach":
        # The color belongs to the water.
        return [low, green, rock, cap]
    return [stage.tinted(low, 0.75), stage.tinted(green, 0.75), stage.tinted(rock, 0.6), cap]


def _shade(relief: TerrainRelief) -> tuple[Image, Image]:
    """Return the light on the land (0 to 1) and its steepness, per pixel."""
    stage, land = relief.stage, relief.land
    steep = np.float32(3.4 * land.steep * land.amplitude / 8)
    tile = relief.tile
    wrapped = cv2.copyMakeBorder(tile, 2, 2, 2, 2, cv2.BORDER_WRAP)
    dx = cv2.Scharr(wrapped, cv2.CV_32F, 1, 0)[2:-2, 2:-2] * np.float32(_TILE / 32 / 36) * steep
    dz = cv2.Scharr(wrapped, cv2.CV_32F, 0, 1)[2:-2, 2:-2] * np.float32(_TILE / 32 / 36) * steep
    length = np.sqrt(dx * dx + dz * dz + 1)
    lx, ly, lz = _light_direction(stage)
    facing = (-dx * np.float32(lx) - dz * np.float32(lz) + np.float32(ly)) / length
    lit = np.clip(facing * 1.15 + 0.06, 0, 1)
    if land.amplitude > 2.5:
        lit *= 0.25 + 0.75 * _shadow(tile * np.float32(land.amplitude / 8), (-lx, -lz), 0.011 + ly * 0.012)
    u, v = relief._world(relief.x, relief.depth_z)
    return noise.sample(lit, u, v), noise.sample(1 - 1 / length, u, v)


def render(stage: SceneStage, kind: str, name: str = "land") -> TerrainRelief:
    """Paint the land of `kind` over the sky and store the water's mask in the stage."""
    land = lands()[kind]
    relief = TerrainRelief(stage, land, name)
    lit, steep = _shade(relief)
    ground = relief.heights(relief.x, relief.depth_z)
    low, green, rock, _ = _tones(stage, land)
    detail = noise.sample(relief.tile, relief.x * np.float32(0.31), relief.depth_z * np.float32(0.31))
    share = (ground - land.floor) / np.float32(max(land.amplitude, 1)) + (detail - 0.5) * np.float32(0.12)
    color = ramp(
        [(0, low), (0.10, mix(low, green, 0.5)), (0.26, green), (0.7, green)], np.clip(share, 0, 0.7)
    )
    patch = np.clip(detail * 1.6 - 0.55, 0, 1)
    color *= (0.80 + 0.40 * patch)[..., None]
    rocky = noise.smoothstep(0.22, 0.42, steep + (share - 0.4) * 0.30) if land.amplitude > 2.5 else None
    if rocky is not None:
        over(color, rock * (0.75 + 0.5 * detail)[..., None], np.clip(rocky, 0, 1))
    has_snow = stage.scene.season == "winter" or stage.weather == "snow"
    white = None
    if land.snowline < 1.5 or has_snow:
        line = min(land.snowline, 0.12 if has_snow else 9)
        white = noise.smoothstep(line - 0.06, line + 0.08, share - steep * 0.35 + 0.12)
        over(color, rgb("#f4f7fc"), white)
    light = stage.palette.ambient + lit[..., None] * stage.palette.light
    color *= light
    if white is not None and has_snow and stage.time == "night":
        # Snow stays the brightest part of a night.
        pale = mix(rgb("#dbe4f4"), stage.palette.haze, 0.35)
        over(color, pale * (0.62 + 0.30 * lit)[..., None], white * np.float32(0.75))
    _air(stage, relief, color, land)
    if land.water is not None:
        wet = (ground <= np.float32(land.water + 0.004)).astype(np.float32)
        plane = (np.arange(stage.height) >= stage.horizon).astype(np.float32)[:, None].repeat(stage.width, 1)
        over_land = plane[relief.top :]
        over_land += (cv2.GaussianBlur(wet, (0, 0), 0.7) - over_land) * relief.mask
        stage.water = plane
    stage.image[int(stage.horizon) :] = stage.palette.haze
    over(stage.image[relief.top :], np.clip(color, 0, 1), relief.mask)
    far = np.log(relief.depth_z) / np.float32(np.log(_FAR))
    stage.depth[relief.top :] += (far - stage.depth[relief.top :]) * relief.mask
    stage.step("terrain")
    return relief


def _air(stage: SceneStage, relief: TerrainRelief, color: Image, land: TerrainKind) -> None:
    """Add haze by distance, thicker in fog and near the horizon."""
    thick = {"fog": 0.062, "rain": 0.05, "snow": 0.036, "storm": 0.04, "cloudy": 0.04}.get(
        stage.weather, 0.032
    )
    amount = 1 - np.exp(-np.maximum(relief.depth_z - 2.0, 0) * np.float32(thick * land.haze))
    rows = np.arange(relief.top, stage.height, dtype=np.float32)[:, None]
    pool = np.exp(-((rows - np.float32(stage.horizon)) ** 2) / np.float32((stage.height * 0.10) ** 2))
    amount = np.clip(amount * (0.78 + 0.42 * pool), 0, 0.95)
    haze = stage.palette.haze
    if stage.is_wintry and stage.time == "night":
        haze = mix(haze, rgb("#dbe4f4"), 0.38)
    over(color, haze, amount.astype(np.float32))


# Roughness of water by place, and its factor by weather.
_ROUGH = {"lake": 0.35, "river": 0.55, "sea": 1.0, "beach": 0.9, "city": 0.6}
_WIND = {"storm": 1.9, "rain": 1.25, "fog": 0.6, "snow": 0.8}


def _surface(stage: SceneStage, top: int, rough: float) -> tuple[Image, Image]:
    """Return the slopes of the water in perspective, from row `top` down: fine far away, broad nearby."""
    rng = stage.rng("water")
    texture = noise.tile(rng, 512, 9, 6, 0.60)
    rows = stage.height - top
    down = (np.arange(rows, dtype=np.float32) + 1.5) / np.float32(stage.height)
    z = 0.30 / (down + 0.004)
    x = (np.arange(stage.width, dtype=np.float32) / np.float32(stage.width) - np.float32(0.5)) * np.float32(
        stage.width / stage.height
    )
    u = np.ascontiguousarray(x[None, :] * z[:, None] * np.float32(0.16))
    v = np.ascontiguousarray(np.broadcast_to(z[:, None] * np.float32(0.62), u.shape))
    wave = noise.sample(texture, u, v)
    fine = noise.sample(texture, u * 3.7 + 0.3, v * 3.1)
    fade = np.clip(down * 9, 0.12, 1)[:, None]
    return (wave * 0.7 + fine * 0.5) * np.float32(rough) * fade, down[:, None]


def _mirror(stage: SceneStage, top: int, slope: Image, reach: float) -> Image:
    """Return the reflection: the image above row `top`, flipped and rippled."""
    rows = stage.height - top
    y = np.arange(rows, dtype=np.float32)[:, None]
    up = (
        np.float32(top)
        - y * np.float32(min(1.0, top / max(rows, 1)))
        - 1
        - np.abs(slope) * np.float32(reach * 5)
        - slope * y * np.float32(0.20)
    )
    x = np.arange(stage.width, dtype=np.float32)[None, :] + slope * np.float32(reach * 1.4)
    source = cv2.GaussianBlur(np.clip(stage.image[:top], 0, 1), (0, 0), sigmaX=0.8, sigmaY=stage.unit * 0.9)
    return cv2.remap(source, x, np.clip(up, 0, top - 1), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


def _glints(stage: SceneStage, top: int, slope: Image, down: Image) -> Image:
    """Return sparkles under the light, in a path that widens towards the viewer."""
    x = np.arange(stage.width, dtype=np.float32)[None, :] - np.float32(stage.light_at[0])
    spread = stage.width * (0.025 + 0.16 * down)
    path = np.exp(-((x / spread) ** 2))
    facets = noise.smoothstep(0.30, 0.75, slope * 1.3 + path * 0.36)
    return facets * path


def paint_water(stage: SceneStage) -> None:
    """Paint water where the stage's water mask is set."""
    plane = stage.water
    if plane is None or not plane.any():
        return
    top = int(np.argmax(plane.max(1) > 0.3))
    top = max(4, min(stage.height - 4, max(top, int(stage.horizon))))
    rough = _ROUGH.get(stage.place, 0.6) * _WIND.get(stage.weather, 1.0)
    slope, down = _surface(stage, top, rough)
    mirror = _mirror(stage, top, slope, stage.unit)
    palette = stage.palette
    tint = rgb("#1d7f8c") if stage.place == "beach" else rgb("#154a63")
    if stage.place != "beach":
        tint = stage.tinted(tint, 0.85)
    body = palette.lit(saturate(tint, 0.95), 0.45)
    if stage.scene.ground and stage.place != "beach":
        # Otherwise, the reflection hides the color that the prompt gives to the water.
        mirror = mix(mirror, body, 0.45)
    body = mix(body, palette.sky[1], 0.22)
    grazing = np.clip(1.0 - down * 1.9, 0.0, 1) ** 1.5 * 0.55 + 0.36
    facing = np.clip(grazing - slope * 0.42, 0.06, 0.96)
    water = body + (mirror - body) * facing[..., None]
    water *= np.clip(1 - np.maximum(-slope, 0) * 0.35, 0.5, 1)[..., None]
    if stage.weather not in ("rain", "storm", "fog", "snow"):
        strong = {"day": 0.55, "night": 0.75}.get(stage.time, 1.0)
        glow(water, palette.sun, _glints(stage, top, slope, down) * np.float32(strong))
    caps = {"storm": 0.55, "sea": 0.85}.get("storm" if stage.weather == "storm" else stage.place, 9.0)
    if caps < 2:
        foam = noise.smoothstep(caps, caps + 0.35, slope * (0.6 + down * 1.6))
        over(water, palette.lit(rgb("#f2f6f8"), 0.55), foam * np.float32(0.55))
    haze = np.exp(-down * (26.0 if stage.weather != "fog" else 6.0)) * np.float32(0.55)
    over(water, palette.haze, haze)
    over(stage.image[top:], np.clip(water, 0, 1), plane[top:])
    depth = stage.depth[top:]
    depth += (np.clip(0.75 - down * 1.3, 0.05, 1) - depth) * plane[top:]
    stage.step("water")


def paint_shore(stage: SceneStage) -> None:
    """Paint a sandy beach in the foreground with wet sand and surf."""
    rng = stage.rng("shore")
    height, width = stage.shape
    x = np.linspace(0, 1, width, dtype=np.float32)
    side = 1.0 if stage.layout.flip else -1.0
    line = (
        0.80
        + side * 0.11 * (x - 0.5) * 2
        + 0.018 * np.sin(x * 7 + float(rng.random()) * 6)
        + noise.fbm(rng, (1, width), (1, 5), 4)[0] * 0.010
    )
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    inland = (y - line[None, :]) * np.float32(1 / 0.2)
    grain = noise.fbm(rng, stage.shape, (height / 3, width / 5), 3, 0.7)
    dunes = noise.fbm(rng, stage.shape, (9, 4), 4)
    sand = (
        stage.palette.lit(stage.tinted(rgb("#edd6a8"), 0.8), 0.72)
        * (0.97 + 0.045 * grain + 0.06 * dunes)[..., None]
    )
    wet = mix(stage.palette.lit(stage.tinted(rgb("#a98a5f"), 0.6), 0.45), stage.palette.sky[2], 0.35)
    paint_sand = sand + (wet - sand) * (1 - noise.smoothstep(0.06, 0.30, inland + dunes * 0.05))[..., None]
    stage.add_layer(np.clip(paint_sand, 0, 1), noise.smoothstep(-0.015, 0.02, inland), 0.08)
    lace = noise.fbm(rng, stage.shape, (26, 34), 5, 0.6)
    for offset, width_, strength in (
        (-0.02, 0.05, 0.95),
        (-0.23, 0.045, 0.7),
        (-0.42, 0.03, 0.5),
        (-0.58, 0.02, 0.35),
    ):
        shift = noise.fbm(rng, (1, width), (1, 4), 3)[0] * np.float32(0.05)
        band = np.abs(inland - offset - shift[None, :] + lace * 0.03) / np.float32(width_)
        foam = np.clip(1 - band, 0, 1) * np.clip(0.75 + lace, 0.1, 1)
        over(
            stage.image,
            stage.palette.lit(rgb("#ffffff"), 0.68),
            np.clip(foam * np.float32(strength * 1.3), 0, 1),
        )
    if stage.water is not None:
        stage.water = stage.water * (1 - noise.smoothstep(-0.015, 0.02, inland))
