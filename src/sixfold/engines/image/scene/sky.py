"""Skies and weather: gradient, sun, moon, stars, clouds, aurora, rainbow, lightning, rain, snow and fog."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image.scene import noise, styles
from sixfold.engines.image.scene.canvas import Image, blur, disc, distance, fill, glow, mix, over, ramp, rgb
from sixfold.engines.image.scene.stage import SceneStage
from sixfold.engines.image.scene.words import place_choice

# Cloud cover by weather, 0 to 1.
_COVER = {"clear": 0.20, "fair": 0.44, "cloudy": 0.72, "rain": 0.86, "storm": 0.92, "snow": 0.80, "fog": 0.55}


def _gradient(stage: SceneStage) -> None:
    sky = stage.palette.sky
    rows = np.linspace(0, 1, stage.height, dtype=np.float32) / max(stage.layout.horizon, 0.05)
    stops = [(0.0, sky[0]), (0.42, sky[1]), (0.78, sky[2]), (1.0, sky[3]), (1.6, sky[3])]
    lean = noise.octave(stage.rng("lean"), stage.height, stage.width, (2, 2)) * np.float32(0.035)
    side = np.linspace(-0.05, 0.05, stage.width, dtype=np.float32)
    if stage.layout.light[0] < 0.5:
        side = side[::-1]
    stage.image[:] = ramp(stops, np.clip(rows[:, None] + lean + side[None, :], 0, 1.6))
    stage.depth[:] = 1


def _halo(stage: SceneStage) -> None:
    """Add the light's glow, wide and narrow."""
    if stage.weather in ("rain", "storm", "snow"):
        return
    reach = distance(stage.shape, stage.light_at, 1.15) / np.float32(max(stage.shape))
    low = 1.0 - abs(stage.layout.horizon - stage.layout.light[1])
    strong = {"day": 0.30, "dawn": 0.52, "sunset": 0.62, "dusk": 0.34, "night": 0.20}[stage.time]
    glow(stage.image, stage.palette.sun, np.exp(-reach * 9) * np.float32(strong * low))
    glow(
        stage.image,
        mix(stage.palette.sky[3], stage.palette.sun, 0.3),
        np.exp(-reach * 3.2) * np.float32(strong * 0.55),
    )


def _stars(stage: SceneStage) -> None:
    rng = stage.rng("stars")
    height, width = stage.shape
    count = int(height * width / 1500)
    y = (rng.random(count) ** 1.3 * stage.horizon).astype(int).clip(0, height - 1)
    x = rng.integers(0, width, count)
    field = np.zeros(stage.shape, np.float32)
    field[y, x] = rng.random(count, dtype=np.float32) ** 4 * 0.9 + 0.16
    sky = field + blur(field, max(0.6, stage.unit * 0.09)) * np.float32(1.6)
    for _ in range(max(5, count // 60)):
        at = (float(rng.random() * width), float(rng.random() * stage.horizon * 0.9))
        sky += _sparkle(stage.shape, at, float(rng.uniform(0.25, 0.6)) * stage.unit)
    fade = np.clip(1.1 - np.arange(height, dtype=np.float32) / max(stage.horizon, 1), 0, 1)[:, None]
    strength = 1.0 if stage.time == "night" else 0.4
    glow(stage.image, rgb("#eef3ff"), np.clip(sky * fade * np.float32(strength), 0, 1))
    if stage.time == "night" and stage.weather in ("clear", "fair") and stage.place != "city":
        _milky_way(stage)


def _sparkle(shape: tuple[int, int], at: tuple[float, float], radius: float) -> Image:
    spot = np.zeros(shape, np.float32)
    reach = int(radius * 6) + 2
    x, y = int(at[0]), int(at[1])
    top, left = max(0, y - reach), max(0, x - reach)
    window = spot[top : y + reach, left : x + reach]
    if window.size:
        dy = np.abs(np.arange(window.shape[0], dtype=np.float32) + top - y)[:, None] / np.float32(radius)
        dx = np.abs(np.arange(window.shape[1], dtype=np.float32) + left - x)[None, :] / np.float32(radius)
        window += (
            np.exp(-(dx**2 + dy**2) * 3)
            + 0.35 * np.exp(-dx * 5 - dy * 0.9)
            + 0.35 * np.exp(-dy * 5 - dx * 0.9)
        )
    return spot


def _milky_way(stage: SceneStage) -> None:
    rng = stage.rng("milky way")
    height, width = stage.shape
    slope = float(rng.uniform(0.5, 1.1)) * (1 if rng.random() < 0.5 else -1)
    center = float(rng.uniform(0.3, 0.7)) * width
    x = np.arange(width, dtype=np.float32)[None, :]
    y = np.arange(height, dtype=np.float32)[:, None]
    across = ((x - center) * np.float32(slope) + (y - stage.horizon * 0.45)) / np.float32(
        np.hypot(1, slope) * height
    )
    wisps = noise.fbm(rng, stage.shape, (6, 6), 6, 0.62)
    band = np.exp(-((across + wisps * 0.035) ** 2) * 90)
    dust = noise.smoothstep(0.1, 0.7, noise.fbm(rng, stage.shape, (5, 5), 6, 0.6) - np.abs(across) * 5)
    fade = np.clip(1.0 - y / max(stage.horizon, 1), 0, 1) ** 0.6
    light = band * np.clip(0.42 + wisps * 0.5, 0, 1) * (1 - dust * 0.75) * fade
    glow(stage.image, rgb("#bfc8f2"), light * np.float32(0.55))
    glow(stage.image, rgb("#f0b7c8"), light**2 * np.float32(0.35))
    grains = (noise.octave(rng, height, width, (height / 2.0, width / 2.0)) > 0.66).astype(np.float32)
    glow(stage.image, rgb("#ffffff"), np.clip(light * grains * np.float32(1.6), 0, 1))


def _sun(stage: SceneStage) -> None:
    x, y = stage.light_at
    moon = stage.time == "night"
    radius = stage.unit * ({"day": 2.6, "night": 5.2, "dusk": 4.0}.get(stage.time, 5.2))
    face = disc(stage.shape, (x, y), radius)
    if moon:
        marks = noise.fbm(
            stage.rng("moon"), stage.shape, (height_cells(stage, 3.2), width_cells(stage, 3.2)), 4
        )
        paint = stage.palette.sun * (1 - noise.smoothstep(0.05, 0.55, marks) * np.float32(0.18))[..., None]
        near = distance(stage.shape, (x, y)) / np.float32(radius)
        glow(
            stage.image,
            mix(stage.palette.sun, stage.palette.sky[2], 0.4),
            np.exp(-near * 0.42) * np.float32(0.55),
        )
        over(stage.image, np.clip(paint, 0, 1), face)
    elif stage.weather not in ("rain", "storm", "snow"):
        near = distance(stage.shape, (x, y)) / np.float32(radius)
        glow(stage.image, stage.palette.sun, np.exp(-np.maximum(near - 1, 0) * 1.7) * np.float32(0.7))
        over(stage.image, stage.palette.sun, face)


def height_cells(stage: SceneStage, size_units: float) -> float:
    """Return the image's height in cells of `size_units` units."""
    return stage.height / (stage.unit * size_units)


def width_cells(stage: SceneStage, size_units: float) -> float:
    """Return the image's width in cells of `size_units` units."""
    return stage.width / (stage.unit * size_units)


def _cloud_field(stage: SceneStage, rows: int, name: str) -> tuple[Image, Image]:
    """Return density and height of a cloud deck in perspective, at half size."""
    rng = stage.rng(name)
    texture = noise.tile(rng, 512, 3, 8, 0.56)
    height, width = max(8, rows // 2), max(8, stage.width // 2)
    y = (np.arange(height, dtype=np.float32) + 0.5) / height
    away = 1.0 / (1.10 - y)
    x = (np.arange(width, dtype=np.float32) / width - np.float32(0.5)) * np.float32(
        stage.width / max(rows, 1)
    )
    u = x[None, :] * (0.35 + 0.21 * away[:, None]) + np.float32(rng.random())
    v = np.broadcast_to(away[:, None] * 0.33 + np.float32(rng.random()), (height, width))
    density = noise.sample(texture, u, np.ascontiguousarray(v))
    return density, np.broadcast_to(y[:, None], density.shape)


def _clouds(stage: SceneStage) -> None:
    """Paint cloud decks lit from the light's side, thinner towards the zenith."""
    rows = int(min(stage.height, max(16, stage.horizon * 1.02)))
    density, y = _cloud_field(stage, rows, "clouds")
    cover = _COVER[stage.weather]
    edge = 0.62 - cover * 1.12
    if stage.weather in ("clear", "fair"):
        edge = edge + (1 - y) * 0.25 - 0.1
    body = noise.smoothstep(0.0, 0.42, density - edge)
    size = stage.unit * 0.5
    lx = (stage.layout.light[0] - 0.5) * 2
    shift = np.array([[1, 0, -lx * size * 3], [0, 1, size * 2.6]], np.float64)
    soft = cv2.GaussianBlur(density, (0, 0), max(0.6, size * 0.6))
    lit = soft - cv2.warpAffine(soft, shift, (soft.shape[1], soft.shape[0]), borderMode=cv2.BORDER_REPLICATE)
    shade = np.clip(0.62 + lit * 1.15 - noise.smoothstep(0.15, 1.1, density - edge) * 0.42, 0, 1)
    body, shade = (
        cv2.resize(plane, (stage.width, rows), interpolation=cv2.INTER_CUBIC) for plane in (body, shade)
    )
    palette = stage.palette
    reach = distance((rows, stage.width), stage.light_at) / np.float32(max(stage.shape))
    near = np.exp(-reach * 4.5) * np.float32(0.65 if stage.weather in ("clear", "fair", "cloudy") else 0.1)
    paint = ramp(
        [
            (0, palette.cloud_shade),
            (0.55, mix(palette.cloud_shade, palette.cloud_lit, 0.62)),
            (1, palette.cloud_lit),
        ],
        shade,
    )
    paint += (palette.sun - paint) * (near * shade)[..., None]
    distant = np.clip((np.linspace(0, 1, rows, dtype=np.float32) - 0.55) / 0.45, 0, 1)[:, None] ** 2 * 0.55
    paint += (stage.image[:rows] - paint) * distant[..., None]
    opaque = {"clear": 0.72, "fair": 0.88, "fog": 0.5}.get(stage.weather, 0.94)
    over(stage.image[:rows], paint, np.clip(body, 0, 1) * np.float32(opaque))


def _cumulus(stage: SceneStage) -> None:
    """Paint heaped clouds on the horizon, lit from the light's side."""
    rng = stage.rng("cumulus")
    base = int(stage.horizon * 0.96)
    if base < 24:
        return
    factor = 2
    height, width = base // factor, stage.width // factor
    solid = np.zeros((height, width), np.float32)
    for _ in range(int(rng.integers(2, 5))):
        center = rng.uniform(-0.05, 1.05) * width
        spread = rng.uniform(0.12, 0.30) * width
        tall = rng.uniform(0.26, 0.62) * height
        for _ in range(46):
            offset = float(rng.normal(0, 0.42))
            rise = tall * max(0.0, 1 - abs(offset)) ** 1.3 * float(rng.random() ** 0.8)
            radius = (0.15 + 0.30 * float(rng.random())) * tall * (1.05 - 0.55 * rise / tall) * 0.55
            at = (round((center + offset * spread) * 16), round((height * 0.98 - rise) * 16))
            puff = np.zeros_like(solid, np.uint8)
            cv2.circle(puff, at, max(16, round(radius * 16)), 255, -1, cv2.LINE_AA, 4)
            np.maximum(
                solid, puff.astype(np.float32) / 255 * np.float32(0.55 + 0.45 * rise / tall), out=solid
            )
    if not solid.any():
        return
    wobble = noise.fbm(rng, (height, width), (height / 22, width / 22), 5, 0.55)
    _paint_cumulus(stage, solid, wobble, base)


def _paint_cumulus(stage: SceneStage, solid: Image, wobble: Image, base: int) -> None:
    height, width = solid.shape
    reach = np.float32(stage.unit * 0.75)
    gx, gy = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    ragged = cv2.remap(
        solid, gx + wobble * reach * 1.5, gy + np.roll(wobble, 37, 1) * reach, cv2.INTER_LINEAR
    )
    alpha = noise.smoothstep(0.18, 0.5, cv2.GaussianBlur(ragged, (0, 0), max(0.5, stage.unit * 0.08)))
    heap = cv2.GaussianBlur(ragged, (0, 0), stage.unit * 0.8) + wobble * np.float32(0.10)
    lx = (stage.layout.light[0] - 0.5) * 2
    move = stage.unit * 1.1
    shift = np.array([[1, 0, -lx * move], [0, 1, move]], np.float64)
    light = heap - cv2.warpAffine(heap, shift, (width, height), borderMode=cv2.BORDER_REPLICATE)
    down = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    shade = np.clip(0.66 + light * 1.9 - np.clip(down - 0.55, 0, 1) * 0.5, 0, 1)
    alpha *= 1 - noise.smoothstep(0.80, 1.0, np.broadcast_to(down, alpha.shape))
    alpha, shade = (
        cv2.resize(plane, (stage.width, base), interpolation=cv2.INTER_CUBIC) for plane in (alpha, shade)
    )
    palette = stage.palette
    paint = ramp(
        [
            (0, palette.cloud_shade),
            (0.5, mix(palette.cloud_shade, palette.cloud_lit, 0.6)),
            (0.85, palette.cloud_lit),
            (1, mix(palette.cloud_lit, palette.sun, 0.5)),
        ],
        shade,
    )
    paint += (stage.palette.haze - paint) * np.float32(0.16)
    over(stage.image[:base], paint, np.clip(alpha, 0, 1) * np.float32(0.96))


def _aurora(stage: SceneStage) -> None:
    rng = stage.rng("aurora")
    height, width = stage.shape
    x = np.linspace(0, 1, width, dtype=np.float32)
    y = np.arange(height, dtype=np.float32)[:, None] / np.float32(stage.horizon)
    for index, color in enumerate(("#37f0a0", "#41e8d0", "#9b6bff")):
        wave = noise.fbm(rng, (1, width), (1, 3 + index), 4)[0]
        line = 0.62 - 0.13 * index + wave * 0.16 + 0.10 * np.sin(x * 5 + float(rng.random()) * 6)
        rays = 0.55 + 0.45 * noise.fbm(rng, (1, width), (1, 60), 3)[0]
        above = line[None, :] - y
        curtain = np.exp(-np.maximum(above, 0) * (4.2 + index)) * noise.smoothstep(-0.05, 0.03, above)
        glow(
            stage.image, rgb(color), np.clip(curtain * rays[None, :] * np.float32(0.62 - 0.12 * index), 0, 1)
        )


def _rainbow(stage: SceneStage) -> None:
    height, width = stage.shape
    x = np.arange(width, dtype=np.float32)[None, :] - np.float32(width * (1 - stage.layout.light[0]))
    y = np.arange(height, dtype=np.float32)[:, None] - np.float32(stage.horizon * 1.12)
    radius = min(0.46 * width, 0.95 * stage.horizon)
    band = (np.hypot(x, y) - np.float32(radius)) / np.float32(stage.unit * 1.05)
    fade = np.clip(-y / np.float32(stage.unit * 16), 0, 1)
    for index, color in enumerate(("#5a48c8", "#3f7fe0", "#37b86a", "#f2d83c", "#f08a2c", "#dc3a34")):
        over(
            stage.image, rgb(color), np.exp(-((band - np.float32(index)) ** 2) * 1.3) * fade * np.float32(0.5)
        )


def lightning_bolt(stage: SceneStage) -> None:
    """Paint a branching bolt from the clouds to the land, and its flash."""
    canvas = draw_bolt(stage.rng("lightning"), (stage.width, stage.height), stage.horizon, stage.unit)
    bolt = canvas.astype(np.float32) / 255
    glow(stage.image, rgb("#a9b8ff"), np.clip(blur(bolt, stage.unit * 5) * 5, 0, 0.75))
    glow(stage.image, rgb("#dfe4ff"), np.clip(blur(bolt, stage.unit * 0.8) * 1.4, 0, 1))
    over(stage.image, rgb("#ffffff"), bolt)


def draw_bolt(rng: np.random.Generator, size: tuple[int, int], horizon: float, unit: float) -> Image:
    """Return a branching bolt down to the `horizon` in bytes; `size` is the width and the height."""
    width, height = size
    top = np.array([width * rng.uniform(0.2, 0.8), height * 0.02])
    end = np.array([top[0] + width * rng.uniform(-0.16, 0.16), horizon * 1.0])
    canvas = np.zeros((height, width), np.uint8)
    for branch in range(4):
        start = top if branch == 0 else top + (end - top) * rng.uniform(0.25, 0.6)
        stop = end if branch == 0 else start + (end - top) * [rng.uniform(-2.0, 2.0), rng.uniform(0.2, 0.42)]
        path = np.linspace(start, stop, 18)
        path[1:-1, 0] += np.cumsum(rng.normal(0, unit * 1.5, 16)) * np.sin(np.linspace(0, np.pi, 18))[1:-1]
        thickness = max(1, round(unit * (0.55 if branch == 0 else 0.25)))
        cv2.polylines(canvas, [np.round(path * 16).astype(np.int32)], False, 255, thickness, cv2.LINE_AA, 4)
    return canvas


def paint(stage: SceneStage) -> None:
    _gradient(stage)
    if stage.time in ("night", "dusk") and stage.weather in ("clear", "fair"):
        _stars(stage)
    text = stage.scene.prompt.casefold()
    if any(word in text for word in ("aurora", "northern light", "极光", "オーロラ", "polarlicht")):
        _aurora(stage)
    _halo(stage)
    if stage.weather not in ("rain", "storm", "snow", "fog"):
        _sun(stage)
    _clouds(stage)
    if stage.scene.has_rainbow:
        _rainbow(stage)
    if stage.scene.has_moon and stage.time == "night" and stage.weather not in ("clear", "fair"):
        # The clouds would hide it.
        _sun(stage)
    if stage.weather == "fair" and stage.time != "night":
        _cumulus(stage)
    styles.color_sky(stage)
    stage.step("sky")


def flock(stage: SceneStage, count: int, at: tuple[float, float], size: float) -> None:
    """Paint a few distant birds."""
    rng = stage.rng("flock")
    for _ in range(count):
        x = (at[0] + float(rng.normal(0, 0.06))) * stage.width
        y = (at[1] + float(rng.normal(0, 0.035))) * stage.height
        s = size * stage.unit * float(rng.uniform(0.6, 1.2))
        lift = float(rng.uniform(0.2, 0.55))
        wing = np.array(
            [
                [-1, -lift],
                [-0.5, -lift * 1.25],
                [0, 0],
                [0.5, -lift * 1.25],
                [1, -lift],
                [0.45, -lift * 0.85],
                [0, 0.22],
                [-0.45, -lift * 0.85],
            ],
            np.float32,
        )
        mask = fill(stage.shape, [wing * np.float32(s) + np.array([x, y], np.float32)])
        over(stage.image, mix(stage.palette.cloud_shade, rgb("#101018"), 0.7), mask * np.float32(0.85))


def rain(stage: SceneStage) -> None:
    """Add slanting streaks at three depths."""
    rng = stage.rng("rain")
    slant = float(rng.uniform(0.10, 0.24)) * (1 if stage.layout.flip else -1)
    for count, length, light in ((900, 3.2, 0.16), (420, 6.5, 0.24), (130, 12.0, 0.30)):
        layer = np.zeros(stage.shape, np.uint8)
        thickness = max(1, round(stage.unit * length * 0.018))
        for _ in range(count):
            x, y = float(rng.uniform(-0.2, 1.2)) * stage.width, float(rng.uniform(-0.1, 1)) * stage.height
            run = stage.unit * length * float(rng.uniform(0.6, 1.2))
            end = (round((x + run * slant) * 16), round((y + run) * 16))
            cv2.line(
                layer,
                (round(x * 16), round(y * 16)),
                end,
                int(rng.integers(90, 255)),
                thickness,
                cv2.LINE_AA,
                4,
            )
        glow(stage.image, rgb("#dfe9f4"), layer.astype(np.float32) / 255 * np.float32(light))


def snow(stage: SceneStage) -> None:
    """Add flakes: small in the distance, large and soft nearby."""
    rng = stage.rng("snow")
    for count, radius, soft in ((1100, 0.11, 0.0), (420, 0.21, 0.1), (110, 0.42, 0.25), (20, 1.1, 0.7)):
        layer = np.zeros(stage.shape, np.uint8)
        for _ in range(count):
            at = (
                round(float(rng.uniform(0, stage.width)) * 16),
                round(float(rng.uniform(0, stage.height)) * 16),
            )
            size = max(8, round(stage.unit * radius * float(rng.uniform(0.6, 1.3)) * 16))
            cv2.circle(layer, at, size, int(rng.integers(130, 255)), -1, cv2.LINE_AA, 4)
        flakes = layer.astype(np.float32) / 255
        flakes = blur(flakes, stage.unit * soft) if soft else flakes
        over(
            stage.image,
            mix(rgb("#ffffff"), stage.palette.sky[2], 0.12),
            np.clip(flakes, 0, 1) * np.float32(0.85 if soft < 0.5 else 0.5),
        )


def fog(stage: SceneStage) -> None:
    """Add banks of mist that hide distant objects and drift over near ones."""
    rng = stage.rng("fog")
    banks = noise.fbm(rng, stage.shape, (7, 2.5), 5, 0.55)
    y = np.arange(stage.height, dtype=np.float32)[:, None] / np.float32(stage.height)
    low = np.exp(-((y - np.float32(stage.layout.horizon)) ** 2) * 16)
    amount = np.clip(stage.depth * 0.34 * (0.2 + low) + (0.16 + 0.42 * banks) * low + 0.04, 0, 0.85)
    over(stage.image, mix(stage.palette.haze, stage.palette.sky[3], 0.5), amount)


def splashes(stage: SceneStage, mask: Image) -> None:
    """Add rings where rain hits water."""
    rng = stage.rng("splashes")
    layer = np.zeros(stage.shape, np.uint8)
    top = int(stage.horizon)
    for _ in range(150):
        t = float(rng.random()) ** 0.7
        at = (int(rng.integers(0, stage.width)), int(top + (stage.height - top) * t))
        wide = max(1, round(stage.unit * (0.2 + 1.5 * t)))
        cv2.ellipse(
            layer, at, (wide, max(1, wide // 4)), 0, 0, 360, int(rng.integers(60, 200)), 1, cv2.LINE_AA
        )
    glow(stage.image, rgb("#e6eef5"), layer.astype(np.float32) / 255 * mask * np.float32(0.35))


def apply_weather(stage: SceneStage, *, lightning: bool = True) -> None:
    """Apply the weather to the view, before the look is applied."""
    if stage.place in place_choice.WITHOUT_WEATHER:
        return
    if (stage.weather == "storm" or stage.scene.has_lightning) and lightning:
        lightning_bolt(stage)
    if stage.weather in ("rain", "storm"):
        over(stage.image, stage.palette.haze, stage.depth * np.float32(0.26))
        if stage.water is not None:
            splashes(stage, stage.water)
    elif stage.weather == "snow":
        over(stage.image, mix(stage.palette.haze, rgb("#ffffff"), 0.25), stage.depth * np.float32(0.10))
    elif stage.weather == "fog":
        fog(stage)
    stage.step("weather")


def precipitation(stage: SceneStage) -> None:
    """Add rain or snow in front, after strokes and outlines, which would smear the drops and flakes."""
    if stage.place in place_choice.WITHOUT_WEATHER:
        return
    if stage.weather in ("rain", "storm"):
        rain(stage)
    elif stage.weather == "snow":
        snow(stage)


def petals(stage: SceneStage) -> None:
    """Add blossoms in spring or leaves in autumn, carried by the wind."""
    tones = {"spring": ("#f7c9d6", "#f2a7bd"), "autumn": ("#d9772b", "#e0a63a")}.get(stage.scene.season or "")
    if not tones:
        return
    rng = stage.rng("petals")
    for tone in tones:
        layer = np.zeros(stage.shape, np.uint8)
        for _ in range(46):
            at = (
                round(float(rng.uniform(0, stage.width)) * 16),
                round(float(rng.uniform(0, stage.height)) * 16),
            )
            size = stage.unit * float(rng.uniform(0.25, 0.85)) * 16
            axes = (max(8, round(size)), max(5, round(size * 0.5)))
            cv2.ellipse(layer, at, axes, float(rng.uniform(0, 180)), 0, 360, 255, -1, cv2.LINE_AA, 4)
        over(
            stage.image, stage.palette.lit(rgb(tone), 0.75), layer.astype(np.float32) / 255 * np.float32(0.9)
        )
