"""The style painter: recognizable styles, and unchanged structure, size and alpha."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Canceled, EngineError, Result, Task
from sixfold.engines.image import decode, encode
from sixfold.engines.image.styles import names, prompt_parser
from sixfold.engines.image.styles.engine import RECIPES, StyleEngine
from sixfold.engines.image.styles.names import NAMED_STYLES
from tests.harness.cases import nightly_after

Pixels = NDArray[np.uint8]
WIDTH, HEIGHT = 360, 240


def landscape(width: int = WIDTH, height: int = HEIGHT) -> Pixels:
    """A sun in a graded sky over hills, a house with a red roof, trees, grass of noise."""
    rng = np.random.default_rng(11)
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    sky = np.stack([90 + 130 * rows / height, 140 + 80 * rows / height, 225 - 30 * rows / height], axis=2)
    board = np.clip(sky, 0, 255).astype(np.uint8)
    scale = width / 360
    cv2.circle(
        board, (round(280 * scale), round(55 * scale)), round(26 * scale), (255, 236, 150), -1, cv2.LINE_AA
    )
    for base, color, reach in ((0.55, (96, 120, 150), 22), (0.68, (70, 118, 74), 14)):
        line = height * base - reach * scale * np.sin(columns / (47 * scale) + base * 9)
        board[rows > line] = color
    grass = rows > height * 0.8
    board[grass] = np.clip(np.array([84, 150, 62]) + rng.normal(0, 16, (int(grass.sum()), 3)), 0, 255)
    house = np.array([[70, 130], [150, 130], [150, 205], [70, 205]]) * scale
    roof = np.array([[58, 132], [110, 88], [162, 132]]) * scale
    cv2.fillPoly(board, [house.astype(np.int32)], (236, 222, 196), cv2.LINE_AA)
    cv2.fillPoly(board, [roof.astype(np.int32)], (176, 52, 40), cv2.LINE_AA)
    for x, y, w, h, color in ((84, 148, 20, 20, (60, 80, 120)), (118, 160, 18, 45, (96, 58, 36))):
        cv2.rectangle(
            board, (int(x * scale), int(y * scale)), (int((x + w) * scale), int((y + h) * scale)), color, -1
        )
    for x, r in ((215, 26), (252, 20), (316, 30)):
        cv2.rectangle(
            board,
            (int((x - 4) * scale), int(165 * scale)),
            (int((x + 4) * scale), int(208 * scale)),
            (74, 50, 34),
            -1,
        )
        cv2.circle(board, (int(x * scale), int(152 * scale)), int(r * scale), (34, 92, 44), -1, cv2.LINE_AA)
    return board


class Listener:
    """A context that remembers; cancels once progress passes `until`."""

    def __init__(self, until: float = 2.0) -> None:
        # This engine writes no file.
        self.scratch = Path()
        self.until = until
        self.fractions: list[float] = []
        self.lines: list[str] = []

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)
        if fraction > self.until:
            raise Canceled

    def log(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("style")


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    file = folder / "landscape.png"
    file.write_bytes(encode.encode(landscape(), format="png"))
    return file


def run(source: Path, prompt: str, listener: Listener | None = None, **inputs: Any) -> Result:
    values: Mapping[str, Any] = {"style_prompt": prompt, "quality": 85, "format": "png", "seed": 5, **inputs}
    task = Task("pred_1", "style-transfer", values, {"source_image_url": source})
    return StyleEngine().run(task, listener or Listener())


@cache
def done(source: Path, prompt: str) -> Result:
    return run(source, prompt)


@cache
def styled(source: Path, prompt: str) -> Pixels:
    return decode.decode(done(source, prompt).artifacts[0].data).rgb


def thumb(rgb: Pixels, width: int = 90) -> NDArray[Any]:
    small = cv2.resize(rgb, (width, width * HEIGHT // WIDTH), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)


def outline(rgb: Pixels) -> NDArray[np.float32]:
    light = cv2.GaussianBlur(thumb(rgb)[..., 0], (0, 0), 1.2)
    return np.hypot(cv2.Sobel(light, cv2.CV_32F, 1, 0), cv2.Sobel(light, cv2.CV_32F, 0, 1))


def alike(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def texture(rgb: Pixels) -> NDArray[np.float32]:
    """Return a histogram of fine contrasts."""
    light = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32)
    return light - cv2.GaussianBlur(light, (0, 0), 2.5)


def distance(first: Pixels, second: Pixels) -> float:
    """Return the difference of two images: mean difference in Lab, of the whole and of the fine texture."""
    coarse = float(np.abs(thumb(first) - thumb(second)).mean())
    fine = abs(float(texture(first).std()) - float(texture(second).std()))
    pattern = 4 * (1 - alike(texture(first), texture(second)))
    return coarse + fine / 2 + pattern


def test_more_than_20_named_styles_each_have_a_painter() -> None:
    assert len(NAMED_STYLES) >= 30
    assert set(NAMED_STYLES) == set(RECIPES)
    assert len(names.LOOKUP) == sum(1 + len(aliases) for aliases in names.SYNONYMS.values()), "an alias twice"


def test_the_list_of_names_imports_nothing_heavy() -> None:
    code = (
        "import sys; from sixfold.engines.image.styles.names import NAMED_STYLES;"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'cv2', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("style", nightly_after(14, NAMED_STYLES))
def test_style_changes_the_look_and_keeps_structure_and_size(source: Path, style: str) -> None:
    result = done(source, style)
    artifact = result.artifacts[0]
    image = decode.decode(artifact.data)
    before = landscape()
    assert result.quality == "full"
    assert (image.width, image.height) == (WIDTH, HEIGHT)
    assert artifact.info == {"width": WIDTH, "height": HEIGHT}
    assert artifact.content_type == "image/png"
    assert distance(before, image.rgb) > 4.5
    assert alike(outline(before), outline(image.rgb)) > 0.55
    assert image.rgb.std() > 18, "flat"


def test_every_pair_of_styles_differs(source: Path) -> None:
    pairs = itertools.combinations(NAMED_STYLES, 2)
    close = {pair: distance(styled(source, pair[0]), styled(source, pair[1])) for pair in pairs}
    worst = min(close, key=close.__getitem__)
    assert close[worst] > 5.0, (worst, close[worst])


@pytest.mark.nightly
def test_bytes_are_equal_in_another_process_and_on_one_thread(source: Path) -> None:
    code = (
        "import sys, hashlib, cv2\n"
        "from pathlib import Path\n"
        "from sixfold.core.catalog.engines import Task\n"
        "from sixfold.engines.image.styles.engine import StyleEngine\n"
        "cv2.setNumThreads(1)\n"
        "class Quiet:\n"
        "    def progress(self, fraction): pass\n"
        "    def log(self, line): pass\n"
        "for style in sys.argv[2:]:\n"
        "    inputs = {'style_prompt': style, 'quality': 85, 'format': 'png', 'seed': 5}\n"
        "    task = Task('x', 'style-transfer', inputs, {'source_image_url': Path(sys.argv[1])})\n"
        "    data = StyleEngine().run(task, Quiet()).artifacts[0].data\n"
        "    print(hashlib.sha256(data).hexdigest())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(source), *NAMED_STYLES], capture_output=True, text=True, check=True
    )
    here = [hashlib.sha256(done(source, style).artifacts[0].data).hexdigest() for style in NAMED_STYLES]
    differences = [
        style for style, a, b in zip(NAMED_STYLES, here, ran.stdout.split(), strict=True) if a != b
    ]
    assert differences == []


def test_another_seed_gives_other_bytes(source: Path) -> None:
    first, second = (run(source, "oil painting", seed=seed).artifacts[0].data for seed in (1, 2))
    assert first != second


@pytest.mark.parametrize(
    ("prompt", "style"),
    [
        ("Watercolor", "watercolor"),
        ("in the style of Van Gogh", "van gogh"),
        ("Ukiyo-e style", "ukiyo-e"),
        ("as a pencil sketch", "pencil sketch"),
        ("turn this into a stained-glass window", "stained glass"),
        ("PIXEL ART", "pixel art"),
        ("comic book style", "comic book"),
        ("a risograph", "risograph"),
        ("Make it a mosaic", "mosaic"),
        ("  hdr effect ", "hdr"),
        ("a stormy night in blue tones", None),
        ("watercolor in pink", None),
        ("", None),
    ],
)
def test_prompt_of_a_style_name_selects_that_style(prompt: str, style: str | None) -> None:
    assert names.find_style(prompt) == style


@pytest.mark.parametrize("style", NAMED_STYLES)
def test_every_style_is_recognized_in_common_phrases(style: str) -> None:
    ways = ("{}", "{} style", "in the style of {}", "in {} style", "a {}", "as {} art", "make it {}")
    for way in ways:
        assert names.find_style(way.format(style).upper()) == style, way


def test_free_prompt_is_a_preview_that_follows_its_words(source: Path) -> None:
    blue = run(source, "a stormy night in blue tones, rough brush strokes")
    red = run(source, "a scarlet world, fine brush strokes")
    assert (blue.quality, red.quality) == ("preview", "preview")
    night, day = (decode.decode(result.artifacts[0].data).rgb.astype(int) for result in (blue, red))
    assert night[..., 2].mean() > night[..., 0].mean() + 15
    assert day[..., 0].mean() > day[..., 2].mean() + 15
    assert night.mean() < landscape().mean() - 20


def test_prompt_is_parsed_to_media_palette_light_and_brush() -> None:
    plan = prompt_parser.parse("a neon city as an oil painting, with rough strokes on canvas, foggy, no red")
    assert plan.grade == "cyberpunk"
    assert plan.media == ("oil painting",)
    assert plan.rough > 1
    assert plan.palette == ""
    assert plan.texture == "weave"
    assert plan.lights[0].haze > 0


def test_several_named_styles_combine(source: Path) -> None:
    both = styled(source, "pencil sketch with watercolor")
    for each in ("pencil sketch", "watercolor"):
        assert distance(both, styled(source, each)) > 2.0


@pytest.mark.parametrize(
    ("prompt", "style", "words"),
    [
        ("anmie", "anime", "anmie"),
        ("a cubizm portrait", "cubism", "cubizm"),
        ("in the style of Rembrandt", "oil painting", "rembrandt"),
        ("Art-Nouveau, in blue", "stained glass", "art nouveau"),
        ("watercolr paintng", "watercolor", "watercolr paintng"),
    ],
)
def test_an_unknown_style_becomes_the_nearest_and_is_reported(prompt: str, style: str, words: str) -> None:
    plan = prompt_parser.parse(prompt)
    assert (plan.recognized[0], plan.nearest_to) == (style, words)
    assert not {*words.split()} & {*plan.words.ignored}


@pytest.mark.parametrize(
    "prompt", ["a stormy night in blue", "marble", "a house by the sea", "", "oil and water"]
)
def test_unrelated_words_have_no_nearest_style(prompt: str) -> None:
    assert prompt_parser.parse(prompt).nearest_to == ""


def test_the_nearest_style_is_in_the_log_and_the_result(source: Path) -> None:
    listener = Listener()
    result = run(source, "Rembrandt", listener)
    assert (result.data, result.quality) == ({"style": "oil painting"}, "preview")
    assert listener.lines == ["style: oil painting, the named style that is nearest to 'rembrandt'"]


@pytest.mark.parametrize(
    "prompt", nightly_after(2, ["qwertz uiop", "100 % \x00", "żółta łódź", "x" * 4000, "の風景"])
)
def test_unknown_words_are_reported_as_ignored(source: Path, prompt: str) -> None:
    listener = Listener()
    result = run(source, prompt, listener)
    assert (result.quality, result.words.understood) == ("preview", ())
    assert result.words.ignored
    assert listener.lines == ["style: oil painting, because the prompt names no style"]
    colors = decode.decode(result.artifacts[0].data).rgb.reshape(-1, 3).mean(0)
    assert np.abs(colors - landscape().reshape(-1, 3).mean(0)).max() < 12


@pytest.mark.parametrize("prompt", nightly_after(1, ["", "!!!", "% \x00 \n"]))
def test_prompt_without_known_words_changes_the_image(source: Path, prompt: str) -> None:
    result = run(source, prompt)
    assert result.quality == "preview"
    assert distance(landscape(), decode.decode(result.artifacts[0].data).rgb) > 2.5


def test_alpha_is_kept_and_hidden_pixels_do_not_bleed(folder: Path) -> None:
    rgb = landscape()
    alpha = np.zeros((HEIGHT, WIDTH), np.uint8)
    cv2.circle(alpha, (WIDTH // 2, HEIGHT // 2), 100, 255, -1)
    hidden = rgb.copy()
    hidden[alpha == 0] = (255, 0, 255)
    file = folder / "cut.png"
    file.write_bytes(encode.encode(hidden, alpha, format="png"))
    for style in ("oil painting", "watercolor", "low poly"):
        image = decode.decode(run(file, style).artifacts[0].data)
        assert image.alpha is not None
        assert np.array_equal(image.alpha, alpha)
        visible_pixels = image.rgb[alpha == 255].astype(int)
        magenta = (visible_pixels[:, 0] > 200) & (visible_pixels[:, 1] < 70) & (visible_pixels[:, 2] > 200)
        assert magenta.mean() < 0.003, style


@pytest.mark.parametrize(
    ("width", "height"), nightly_after(1, [(3, 200), (1, 1), (700, 5), (64, 64), (127, 311)])
)
def test_every_style_supports_odd_sizes(folder: Path, width: int, height: int) -> None:
    size = width, height
    file = folder / f"{width}x{height}.png"
    file.write_bytes(encode.encode(cv2.resize(landscape(), size).astype(np.uint8), format="png"))
    styles = NAMED_STYLES if min(size) < 6 else NAMED_STYLES[:: 6 if max(size) > 200 else 4]
    for style in styles:
        info = run(file, style).artifacts[0].info
        assert (info["width"], info["height"]) == size, style


def test_long_image_is_reduced_and_keeps_its_aspect_ratio(folder: Path) -> None:
    file = folder / "long.jpg"
    file.write_bytes(encode.encode(landscape(5000, 500), format="jpeg"))
    info = run(file, "noir").artifacts[0].info
    assert (info["width"], info["height"]) == (4096, 410)


@pytest.mark.parametrize("style", nightly_after(3, NAMED_STYLES))
def test_uniform_gray_image_is_styled(folder: Path, style: str) -> None:
    file = folder / "plain.png"
    if not file.exists():
        file.write_bytes(encode.encode(np.full((40, 60, 3), 128, np.uint8), format="png"))
    assert run(file, style).quality == "full"


def test_requested_format_and_quality_are_used(source: Path) -> None:
    for format_ in ("webp", "png", "jpeg"):
        artifact = run(source, "noir", format=format_).artifacts[0]
        assert artifact.content_type == f"image/{format_}"
        assert decode.decode(artifact.data).format == format_.upper()
    small, large = (len(run(source, "hdr", format="webp", quality=q).artifacts[0].data) for q in (10, 95))
    assert small < large / 2
    default = StyleEngine().run(
        Task("x", "m", {"style_prompt": "noir"}, {"source_image_url": source}), Listener()
    )
    assert default.artifacts[0].content_type == "image/webp"


def test_strength_sets_the_share_of_the_source(source: Path) -> None:
    gaps = []
    for strength in (0.0, 0.5, 1.0):
        image = decode.decode(run(source, "cyberpunk", strength=strength).artifacts[0].data)
        gaps.append(float(np.abs(image.rgb.astype(int) - landscape()).mean()))
    assert gaps[0] == 0
    assert gaps[0] < gaps[1] < gaps[2]


def test_progress_rises_to_one_and_cancels_between_stages(source: Path) -> None:
    listener = Listener()
    run(source, "a neon oil painting", listener)
    assert listener.fractions == sorted(listener.fractions)
    assert len(set(listener.fractions)) >= 5
    assert listener.fractions[-1] == 1.0
    assert listener.lines
    with pytest.raises(Canceled):
        run(source, "oil painting", Listener(until=0.15))


def test_unreadable_source_is_refused_in_one_sentence(folder: Path, source: Path) -> None:
    broken = folder / "broken.png"
    broken.write_bytes(b"<svg/>" * 20)
    with pytest.raises(EngineError, match=r"^The file is not an image"):
        run(broken, "noir")
    with pytest.raises(EngineError, match=r"^source_image_url is required\.$"):
        StyleEngine().run(Task("x", "m", {"style_prompt": "noir"}), Listener())
    with pytest.raises(EngineError, match=r"^format must be one of"):
        run(source, "noir", format="exe")
