"""Rendering of projects: every field of a clip has an effect, and unreadable files are named."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog import css_colors, timeline
from sixfold.core.catalog.engines import Canceled, EngineError, Task, UnusableInput
from sixfold.engines.video import encode, gif
from sixfold.engines.video.timeline import sprites
from sixfold.engines.video.timeline import text as timeline_text
from sixfold.engines.video.timeline.engine import TimelineEngine
from sixfold.engines.video.timeline.mixing import CEILING, Limiter
from tests.api.media_samples import DecodedVideo, near, wav, wave, write_video
from tests.unit.engines.video.videos import Recorder

RED, BLUE, GREEN = (200, 40, 40), (40, 60, 200), (0, 160, 0)
Track = tuple[str, list[dict[str, Any]]]
PLAIN = {"width": 96, "height": 64, "fps": 10, "background": "#00a000"}


@pytest.fixture(scope="module")
def media_files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Write the files that clips use."""
    folder = tmp_path_factory.mktemp("shelf")
    write_video(folder / "red.mp4", RED, tone=440)
    write_video(folder / "blue.mp4", BLUE, size=(48, 64), rate=25, frames=25)
    for name, tone in (("low.wav", 330), ("high.wav", 880)):
        (folder / name).write_bytes(wav(2.0, tone))
    (folder / "phone.wav").write_bytes(wav(1.0, 440, rate=8_000, channels=1))
    (folder / "loud.wav").write_bytes(wav(2.0, 440, loud=0.99))
    Image.new("RGB", (40, 20), BLUE).save(folder / "wide.png")
    Image.new("RGBA", (20, 20), (*RED, 128)).save(folder / "half.png")
    return {path.name: path for path in folder.iterdir()}


def run_project(folder: Path, media_files: Mapping[str, Path], *tracks: Track, **more: Any) -> Path:
    """Render a project whose clips name those files."""
    text = {**PLAIN, **more, "tracks": [{"type": kind, "clips": clips} for kind, clips in tracks]}
    project = timeline.check(text)
    files = {name: media_files[url] for name, url in timeline.urls(project).items()}
    project = timeline.without_urls(timeline.with_durations(project, {}))
    artifact = (
        TimelineEngine().run(Task("t", "render", {"project": project}, files), Recorder(folder)).artifacts[0]
    )
    assert artifact.path is not None
    return artifact.path


def render(folder: Path, media_files: Mapping[str, Path], *tracks: Track, **more: Any) -> DecodedVideo:
    return DecodedVideo(run_project(folder, media_files, *tracks, **more).read_bytes())


FITS = {"contain": (GREEN, GREEN), "cover": (BLUE, GREEN), "fill": (BLUE, GREEN)}


@pytest.mark.parametrize("fit", FITS)
def test_image_fits_its_box_by_the_fit_option(
    tmp_path: Path, media_files: Mapping[str, Path], fit: str
) -> None:
    box = {"x": 8, "y": 4, "width": 80, "height": 56}
    video = render(
        tmp_path, media_files, ("image", [{"url": "wide.png", "duration": 0.2, "fit": fit, **box}])
    )
    within, outside = FITS[fit]
    assert near(video.color(0, 48, 32), BLUE)
    assert near(video.color(0, 12, 8), within)
    # No part of the image is outside of its box.
    assert near(video.color(0, 92, 32), outside)


def test_opacity_and_alpha_show_the_layer_below(tmp_path: Path, media_files: Mapping[str, Path]) -> None:
    clips = [
        {"url": "wide.png", "duration": 0.2, "x": 0, "y": 0, "width": 40, "height": 20, "opacity": 0.5},
        {"url": "half.png", "duration": 0.2, "x": 60, "y": 20, "width": 20, "height": 20},
    ]
    video = render(tmp_path, media_files, ("image", clips))
    assert near(video.color(0, 20, 10), (20, 110, 100))
    assert near(video.color(0, 70, 30), (100, 100, 20))


def test_rotation_is_clockwise_about_the_center_of_the_box(
    tmp_path: Path, media_files: Mapping[str, Path]
) -> None:
    box = {"x": 28, "y": 22, "width": 40, "height": 20}
    for degrees, at in ((90, (48, 15)), (45, (60, 44)), (-45, (60, 20))):
        clip = {"url": "wide.png", "duration": 0.1, "rotation": degrees, **box}
        video = render(tmp_path, media_files, ("image", [clip]))
        assert near(video.color(0, *at), BLUE, 25), degrees
        assert near(video.color(0, 30, 32), GREEN), degrees


def test_video_is_trimmed_sped_up_and_holds_its_last_frame(
    tmp_path: Path, media_files: Mapping[str, Path]
) -> None:
    counting = tmp_path / "counting.mp4"

    with encode.VideoEncoder(counting, (32, 32), Fraction(10)) as result:
        for number in range(20):
            result.add(np.full((32, 32, 3), 12 * number, np.uint8))
    clip = {"url": "counting", "trim_start": 0.5, "speed": 2, "duration": 1.5}
    video = render(tmp_path, {"counting": counting}, ("video", [clip]), width=32, height=32)
    shades = [video.color(second / 10, 16, 16)[0] / 12 for second in range(15)]
    expected = [min(19, 5 + 2 * step) for step in range(15)]
    assert np.abs(np.array(shades) - expected).max() < 0.6


def test_fades_make_the_clip_transparent(tmp_path: Path, media_files: Mapping[str, Path]) -> None:
    clip = {"url": "wide.png", "duration": 2, "fit": "fill", "fade_in": 1, "fade_out": 0.5}
    video = render(tmp_path, media_files, ("image", [clip]))
    assert near(video.color(0, 48, 32), GREEN)
    assert near(video.color(0.5, 48, 32), (20, 110, 100))
    assert near(video.color(1.2, 48, 32), BLUE)
    assert near(video.color(1.8, 48, 32), (24, 100, 80), 22)


TRANSITIONS = {"crossfade": ((120, 50, 120), (120, 50, 120)), "wipe": (BLUE, RED), "slide": (RED, BLUE)}


@pytest.mark.parametrize("kind", TRANSITIONS)
def test_transition_blends_into_its_clip(tmp_path: Path, media_files: Mapping[str, Path], kind: str) -> None:
    clips = [
        {"url": "red.mp4", "duration": 1, "fit": "fill"},
        {
            "url": "blue.mp4",
            "start": 1,
            "duration": 1,
            "fit": "fill",
            "transition": {"type": kind, "duration": 0.8},
        },
    ]
    video = render(tmp_path, media_files, ("video", clips))
    left, right = TRANSITIONS[kind]
    assert near(video.color(0.9, 48, 32), RED)
    assert near(video.color(1.4, 8, 32), left, 20)
    assert near(video.color(1.4, 88, 32), right, 20)
    assert near(video.color(1.9, 48, 32), BLUE)
    assert len(video.frames) == 20


def test_transition_without_a_previous_clip_starts_from_below(
    tmp_path: Path, media_files: Mapping[str, Path]
) -> None:
    clip = {"url": "wide.png", "start": 0.5, "duration": 1, "fit": "fill"}
    change = {"transition": {"type": "crossfade", "duration": 0.4}}
    video = render(tmp_path, media_files, ("image", [{**clip, **change}]))
    assert near(video.color(0.7, 48, 32), (20, 110, 100), 20)


def test_audio_is_mixed_at_the_times_of_its_clips(tmp_path: Path, media_files: Mapping[str, Path]) -> None:
    low = [{"url": "low.wav", "duration": 1.5, "volume": 0.5, "fade_in": 0.5}]
    high = [{"url": "high.wav", "start": 1, "duration": 1, "volume": 0.4}]
    video = render(tmp_path, media_files, ("audio", low), ("audio", high))
    assert video.loudness(0, 0.05) < 0.02
    assert video.loudness(0.6, 0.9) == pytest.approx(0.25 / 2**0.5, rel=0.05)
    assert video.loudness(1.1, 1.4) == pytest.approx((0.25**2 / 2 + 0.2**2 / 2) ** 0.5, rel=0.05)
    assert abs(video.pitch(0.5, 0.95) - 330) < 4
    assert abs(video.pitch(1.6, 1.95) - 880) < 4


def test_audio_of_a_video_keeps_its_pitch_at_another_speed(
    tmp_path: Path, media_files: Mapping[str, Path]
) -> None:
    plain = render(tmp_path, media_files, ("video", [{"url": "red.mp4", "duration": 1}]))
    slow = render(tmp_path, media_files, ("video", [{"url": "red.mp4", "duration": 2, "speed": 0.5}]))
    still = render(tmp_path, media_files, ("video", [{"url": "red.mp4", "duration": 1, "volume": 0}]))
    assert [abs(video.pitch(0.2, 0.8) - 440) < 5 for video in (plain, slow)] == [True, True]
    assert slow.loudness(1.2, 1.8) == pytest.approx(plain.loudness(0.2, 0.8), rel=0.15)
    assert still.codecs == {"video": "h264"}


def test_mono_audio_of_another_rate_is_resampled(tmp_path: Path, media_files: Mapping[str, Path]) -> None:
    video = render(tmp_path, media_files, ("audio", [{"url": "phone.wav", "duration": 1}]))
    assert abs(video.pitch(0.2, 0.8) - 440) < 5
    assert np.allclose(video.sound[0], video.sound[1], atol=0.02)
    assert video.loudness(0.2, 0.8) == pytest.approx(0.5 / 2**0.5, rel=0.05)


def test_many_loud_audio_clips_do_not_clip(tmp_path: Path, media_files: Mapping[str, Path]) -> None:
    clips = [("audio", [{"url": "loud.wav", "duration": 1, "volume": 3}])] * 3
    video = render(tmp_path, media_files, *clips)
    assert np.abs(video.sound).max() < 1.0
    assert video.loudness(0.3, 0.9) > 0.5
    assert abs(video.pitch(0.3, 0.9) - 440) < 3


def test_limiter_keeps_quiet_audio_and_does_not_distort() -> None:
    quiet = wave(0.5, 440, 0.8)
    assert np.array_equal(_limit(quiet)[:, : quiet.shape[1]], quiet)
    loud = wave(0.5, 440, 2.5)
    bent = _limit(loud)[0, 4800:19200]
    assert np.abs(bent).max() <= CEILING + 1e-6
    spectrum = np.abs(np.fft.rfft(bent * np.hanning(bent.size)))
    peak = spectrum.argmax()
    assert spectrum[2 * peak :].max() < 0.01 * spectrum[peak]


def _limit(sound: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    limiter = Limiter()
    parts = [limiter.process(sound[:, at : at + 4800]) for at in range(0, sound.shape[1], 4800)]
    return np.concatenate([*parts, limiter.process(sound[:, :0], last=True)], axis=1)


# -- texts -------------------------------------------------------------------------------------------


def render_text(text: str, project: dict[str, Any] | None = None, **clip: Any) -> sprites.Sprite:
    """Render a text on a frame of 320 x 180."""
    message = {
        "width": 320,
        "height": 180,
        **(project or {}),
        "tracks": [{"type": "text", "clips": [{"text": text, **clip}]}],
    }
    parsed_project = timeline.parse(timeline.check(message))
    return timeline_text.of(parsed_project.tracks[0].clips[0], parsed_project)


def ink_bounds(sprite: sprites.Sprite) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the light letters."""
    rows, columns = np.nonzero(sprite.pixels.max(2) > 40)
    return (
        sprite.left + int(columns.min()),
        sprite.top + int(rows.min()),
        sprite.left + int(columns.max()),
        sprite.top + int(rows.max()),
    )


def test_text_without_a_position_is_centered() -> None:
    left, top, right, bottom = ink_bounds(render_text("Hello there"))
    assert abs((left + right) / 2 - 160) < 4
    assert abs((top + bottom) / 2 - 90) < 8


def test_control_characters_are_not_drawn() -> None:
    assert ink_bounds(render_text("Good\u0007 \u202ebye\u200d")) == ink_bounds(render_text("Good bye"))


def test_text_with_a_position_begins_there() -> None:
    left, top, _, _ = ink_bounds(render_text("Hello", x=40, y=50, style={"font_size": 30}))
    assert 40 <= left < 46
    assert 50 <= top < 66


@pytest.mark.parametrize(("align", "share"), [("left", 0.0), ("center", 0.5), ("right", 1.0)])
def test_lines_are_aligned_in_their_box(align: str, share: float) -> None:
    left, _, right, _ = ink_bounds(
        render_text("Hi", x=20, width=200, style={"align": align, "font_size": 30})
    )
    assert abs(left + share * (right - left) - (20 + share * 200)) < 6


def test_long_text_wraps_by_word_and_long_word_by_letter() -> None:
    words = render_text("several words that need more than a line", x=10, width=120, style={"font_size": 20})
    letters = render_text("x" * 60, x=10, width=120, style={"font_size": 20})
    for result in (words, letters):
        left, top, right, bottom = ink_bounds(result)
        assert left >= 10
        assert right <= 131
        assert bottom - top > 40


def test_background_of_a_text_is_drawn_in_its_color() -> None:
    result = render_text("Hi", style={"font_size": 40, "color": "#ff0000", "background": "rgba(0,0,255,0.5)"})
    assert result.cover is not None
    middle = result.pixels.shape[0] // 2
    assert result.pixels[middle, 3].tolist() == [0, 0, 128]
    assert result.cover[middle, 3, 0] == 128
    assert (result.pixels.reshape(-1, 3).max(0) == [255, 0, 128]).all()


LONG = "What somebody wrote for the foot of a film, and never thought about where it would come to an end. "


@pytest.mark.parametrize("position", [{}, {"y": 120}, {"x": 30}, {"x": 30, "y": 100}])
def test_text_without_a_width_keeps_a_margin_to_the_frame(position: dict[str, int]) -> None:
    left, _, right, bottom = ink_bounds(render_text(LONG, None, **position))
    assert left >= max(16, position.get("x", 0))
    assert 240 < right <= 304
    assert bottom < 180


def test_text_shrinks_to_fit_unless_its_size_is_set() -> None:
    _, top, _, bottom = ink_bounds(render_text(LONG * 4, {"height": 320}))
    assert top >= 16
    assert bottom <= 304
    text = ink_bounds(render_text(LONG * 4, {"height": 320}, style={"font_size": 22}))
    assert text[3] - text[1] > 400


def text_pixels(ground: tuple[int, int, int], sprite: sprites.Sprite) -> np.ndarray[Any, Any]:
    assert sprite.cover is not None
    clear = 1 - sprite.cover.astype(np.float32) / 255
    return sprite.pixels + np.array(ground, np.float32) * clear


@pytest.mark.parametrize("ground", [0, 70, 128, 200, 255])
@pytest.mark.parametrize("color", ["white", "black", "#808080", "#ffd400", "#0033aa"])
def test_text_is_legible_on_any_background_in_its_color(color: str, ground: int) -> None:
    request = np.array((css_colors.rgba(color) or (0, 0, 0, 0))[:3])
    pixels = text_pixels(
        (ground, ground, ground), render_text("WORD", {"width": 640, "height": 360}, style={"color": color})
    )
    letters = (np.abs(pixels - request).max(2) < 1).astype(np.uint8)
    rim = (cv2.dilate(letters, np.ones((9, 9), np.uint8)) > 0) & (letters == 0)
    assert letters.sum() > 100
    light = pixels[rim].mean(1)
    assert float(np.abs(light - request.mean()).max()) > 85


def test_outline_is_invisible_through_transparent_letters() -> None:
    style = {"color": "rgba(255,255,255,0.5)", "font_size": 90}
    plain = text_pixels((128, 128, 128), render_text("I", style={**style, "background": "transparent"}))
    rimmed = text_pixels((128, 128, 128), render_text("I", style=style))
    assert rimmed.max() == plain.max()
    assert 190 < plain.max() < 193
    assert rimmed.min() < 110


def test_explicit_background_replaces_the_outline() -> None:
    result = render_text("Hi", style={"background": "transparent", "font_size": 40})
    assert result.cover is not None
    assert (result.pixels == result.cover).all()


# -- what cannot be ----------------------------------------------------------------------------------


def test_unreadable_file_is_named_by_its_clip(tmp_path: Path, media_files: Mapping[str, Path]) -> None:
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(media_files["red.mp4"].read_bytes()[:700])
    noise = tmp_path / "noise.png"
    noise.write_bytes(media_files["wide.png"].read_bytes()[:60])
    Image.new("L", (30_000, 1)).save(tmp_path / "line.png")
    files = {**media_files, "cut": cut, "noise": noise, "line": tmp_path / "line.png"}
    good = {"url": "wide.png", "duration": 0.1}
    cases: list[tuple[str, str]] = [
        ("video", "cut"),
        ("audio", "cut"),
        ("image", "noise"),
        ("image", "line"),
        ("audio", "blue.mp4"),
    ]
    for kind, url in cases:
        with pytest.raises(EngineError, match=r"^tracks\[1\]\.clips\[0\]: "):
            render(
                tmp_path, files, ("image", [good]), (kind, [{"url": url, "duration": 0.2, "fit": "cover"}])
            )


def test_clip_starting_after_an_unstated_end_is_reported(
    tmp_path: Path, media_files: Mapping[str, Path]
) -> None:
    still = {"url": "wide.png", "duration": 0.3}
    blank = np.zeros((16, 16, 3), np.uint8)
    gif.write_gif(tmp_path / "short.gif", (16, 16), Fraction(10), lambda: iter([blank]))
    files = {**media_files, "short.gif": tmp_path / "short.gif"}
    for kind, url in (("video", "short.gif"), ("audio", "low.wav")):
        clip = {"url": url, "trim_start": 2.5, "duration": 0.2}
        with pytest.raises(
            UnusableInput,
            match=r"^tracks\[1\]\.clips\[0\]: trim_start must be before the end of the file \(got 2\.5\)$",
        ):
            render(tmp_path, files, ("image", [still]), (kind, [clip]))


def test_a_canceled_render_stops(tmp_path: Path, media_files: Mapping[str, Path]) -> None:
    project = timeline.check(
        {**PLAIN, "tracks": [{"type": "text", "clips": [{"text": "x", "duration": 60}]}]}
    )
    context = Recorder(tmp_path, cancel_at=0.1)
    with pytest.raises(Canceled):
        TimelineEngine().run(Task("t", "render", {"project": project}), context)
    assert context.fractions[-1] < 0.2


def test_memory_does_not_grow_with_the_length(tmp_path: Path, media_files: Mapping[str, Path]) -> None:
    def peak(seconds: int) -> int:
        clips = [{"url": "low.wav", "start": at, "duration": 2} for at in range(0, seconds, 2)]
        fade = [{"url": "wide.png", "duration": seconds, "fade_in": seconds}]
        tracemalloc.start()
        run_project(tmp_path, media_files, ("image", fade), ("audio", clips))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(1)
    assert peak(24) < 1.2 * peak(6) + 2_000_000
