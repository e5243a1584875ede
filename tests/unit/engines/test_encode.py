"""Conversions of videos, audio and images, measured after decoding; malicious files open no other files."""

from __future__ import annotations

import subprocess
import sys
import wave
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence

from sixfold.core.catalog.engines import Result, Task, UnusableInput
from sixfold.engines.audio import files
from sixfold.engines.encode import presets
from sixfold.engines.encode.engine import EncodeEngine
from sixfold.engines.encode.optimizer import OptimizerEngine
from sixfold.engines.video import yuv
from sixfold.engines.video.encode import KINDS, AudioSource, VideoEncoder, frame_of_planes
from tests.api.media_samples import wav
from tests.unit.engines.audio.measuring import Recorder

USUAL = {"widths": "320,640,960,1280", "heights": "360,720,1080", "formats": "webp", "quality": 85}


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two seconds of 160 x 90 at 24 fps, first red and then green, with a tone."""
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    tone = np.sin(np.arange(96_000) * 2 * np.pi * 440 / 48_000).astype(np.float32) * 0.4
    with VideoEncoder(path, (160, 90), Fraction(24), AudioSource.of(np.stack([tone, tone]))) as writing:
        for index in range(48):
            frame = np.zeros((90, 160, 3), np.uint8)
            frame[..., 0 if index < 24 else 1] = 200
            frame[:, : index * 3] //= 2
            writing.add(frame)
    return path


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "picture.png"
    Image.effect_mandelbrot((700, 500), (-2, -1.2, 1, 1.2), 50).convert("RGB").save(path)
    return path


@pytest.fixture
def photograph(tmp_path: Path) -> Path:
    path = tmp_path / "photograph.jpg"
    Image.fromarray(pytest.importorskip("skimage.data").coffee()).resize((200, 133)).save(path, quality=90)
    return path


def encoded(folder: Path, source: Path, **inputs: Any) -> tuple[Any, Path]:
    """Return the artifact of an operation and its file."""
    (result,) = (
        EncodeEngine().run(Task("p", "media-encode", inputs, {"media": source}), Recorder(folder)).artifacts
    )
    path = result.path or folder / "made"
    if result.path is None:
        path.write_bytes(result.data)
    return result, path


@pytest.mark.parametrize(("operation", "codec"), [("transcode-mp4", "h264"), ("transcode-webm", "vp9")])
def test_video_is_transcoded_trimmed_and_scaled_with_audio(
    tmp_path: Path, film: Path, operation: str, codec: str
) -> None:
    result, path = encoded(tmp_path, film, operation=operation, width=80, start=0.5, duration=1)
    with av.open(str(path)) as container:
        video = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video)]
        assert (video.codec_context.name, video.width, video.height) == (codec, 80, result.info["height"])
        assert container.streams.audio
    assert len(frames) == 24
    assert result.info["duration"] == 1.0
    assert frames[2][20, 60].argmax() == 0
    assert frames[-3][20, 78].argmax() == 1


@pytest.mark.parametrize("declared", [2, 5, 6])
@pytest.mark.parametrize("operation", ["transcode-mp4", "transcode-webm"])
def test_bt601_video_keeps_its_color_matrix(tmp_path: Path, operation: str, declared: int) -> None:
    rng = np.random.default_rng(3)
    planes = tuple(rng.integers(60, 190, shape, np.uint8) for shape in ((9, 16), (5, 8), (5, 8)))
    large = tuple(np.kron(plane, np.ones((10, 10), np.uint8)) for plane in planes)
    large = (large[0], large[1][:45], large[2][:45])
    source = tmp_path / "source.mp4"
    with av.open(str(source), "w") as container:
        stream: Any = container.add_stream("libx264", rate=24, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = 160, 90, "yuv420p"
        stream.codec_context.colorspace = declared
        frame: Any = frame_of_planes(large)
        for number in range(12):
            frame.pts, frame.colorspace = number, declared
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    _, path = encoded(tmp_path, source, operation=operation)
    with av.open(str(path)) as container:
        (shown, *_) = container.decode(video=0)
        assert int(shown.colorspace) == 5
        for plane, expected in zip(yuv.of_frame(shown), large, strict=True):
            assert abs(float(plane.astype(np.float32).mean() - expected.mean())) < 1


def test_audio_of_a_video_is_encoded_as_mp3(tmp_path: Path, film: Path) -> None:
    result, path = encoded(tmp_path, film, operation="audio-mp3", start=0.5, duration=1)
    sound = files.read(path, 10)
    assert (result.content_type, sound.shape[1]) == ("audio/mpeg", 48_000)
    assert np.argmax(np.abs(np.fft.rfft(sound.mean(0)))) == 440


def test_video_is_encoded_as_gif(tmp_path: Path, film: Path) -> None:
    result, path = encoded(tmp_path, film, operation="gif", width=64)
    with Image.open(path) as image:
        assert (image.format, image.size) == ("GIF", (64, result.info["height"]))
        assert sum(1 for _ in ImageSequence.Iterator(image)) == 25


def test_thumbnail_shows_the_frame_at_the_requested_time(tmp_path: Path, film: Path, picture: Path) -> None:
    for start, channel in ((0.2, 0), (1.6, 1)):
        _, path = encoded(tmp_path, film, operation="thumbnail", width=100, start=start)
        with Image.open(path) as image:
            assert (image.format, image.size) == ("JPEG", (100, 56))
            assert np.asarray(image)[10, 98].argmax() == channel
    result, _ = encoded(tmp_path, picture, operation="thumbnail")
    assert (result.info["width"], result.info["height"]) == (640, 457)
    small, _ = encoded(tmp_path, film, operation="thumbnail")
    assert (small.info["width"], small.info["height"]) == (160, 90)


def test_waveform_shows_the_level(tmp_path: Path) -> None:
    tone = np.sin(np.arange(48_000) * 0.06).astype(np.float32) * np.where(
        np.arange(48_000) < 24_000, 0.9, 0.1
    )
    source = files.write(np.stack([tone, tone]), "wav", tmp_path / "tone.wav").path
    assert source is not None
    result, path = encoded(tmp_path, source, operation="waveform", width=400)
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L")).astype(int)
    assert pixels.shape == (result.info["height"], 400)
    lit = (pixels > 70).sum(0)
    assert lit[60:160].max() > 4 * lit[240:340].max() > 0


def test_mono_audio_keeps_its_loudness(tmp_path: Path) -> None:
    recorded = tmp_path / "phone.wav"
    recorded.write_bytes(wav(1.0, 440, rate=16_000, channels=1))
    _, path = encoded(tmp_path, recorded, operation="audio-mp3")
    decoded = files.read(path, 10)[:, 9_600:38_400]
    assert np.sqrt((decoded**2).mean(1)) == pytest.approx([0.5 / 2**0.5] * 2, rel=0.05)


@pytest.mark.parametrize("operation", ["gif", "transcode-mp4", "audio-mp3", "waveform", "thumbnail"])
def test_playlists_and_malformed_files_are_refused(tmp_path: Path, operation: str) -> None:
    tricks = [
        b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/hostname\n",
        b"ffconcat version 1.0\nfile /etc/hostname\n",
        b"v=0\nc=IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n",
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/hostname'/></svg>",
        b"\0\0\0\x20ftypisom" + b"\0" * 64,
        b"",
    ]
    for trick in tricks:
        path = tmp_path / "film.mp4"
        path.write_bytes(trick)
        with pytest.raises(UnusableInput):
            encoded(tmp_path, path, operation=operation)


def test_missing_stream_or_time_is_refused_with_a_reason(tmp_path: Path, film: Path) -> None:
    with pytest.raises(UnusableInput, match="start must be less than"):
        encoded(tmp_path, film, operation="gif", start=9)
    tone = np.zeros((2, 4800), np.float32)
    silent = files.write(tone, "wav", tmp_path / "tone.wav").path
    assert silent is not None
    with pytest.raises(UnusableInput, match="no video stream"):
        encoded(tmp_path, silent, operation="transcode-mp4")
    with wave.open(str(tmp_path / "sample.wav"), "wb") as sample:
        sample.setparams((1, 2, 16_000, 0, "NONE", ""))
        sample.writeframes(b"\0\0")
    with pytest.raises(UnusableInput, match="contains no audio"):
        encoded(tmp_path, tmp_path / "sample.wav", operation="audio-mp3")


@pytest.mark.nightly
@pytest.mark.parametrize("operation", ["transcode-mp4", "transcode-webm"])
def test_every_process_writes_equal_bytes(tmp_path: Path, film: Path, operation: str) -> None:
    program = """if True:
        import hashlib, os, sys, threading
        from pathlib import Path
        import numpy as np
        from tests.unit.engines.test_encode import encoded
        if sys.argv[4] == "busy":
            junk = [np.random.default_rng(n).integers(0, 255, 40_000 * n, np.uint8) for n in range(40)]
            del junk
            stop = threading.Event()
            def work():
                while not stop.is_set():
                    np.sort(np.random.default_rng(1).random(20_000))
            threads = [threading.Thread(target=work) for _ in range(4)]
            for each in threads: each.start()
        elif hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        _, path = encoded(Path(sys.argv[1]), Path(sys.argv[2]), operation=sys.argv[3])
        if sys.argv[4] == "busy":
            stop.set()
            for each in threads: each.join()
        print(hashlib.sha256(path.read_bytes()).hexdigest())
    """
    hashes: set[str] = set()
    for kind in ("busy", "alone", "busy"):
        folder = tmp_path / f"{kind}{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        command = [sys.executable, "-c", program, str(folder), str(film), operation, kind]
        hashes.add(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert len(hashes) == 1


@pytest.mark.parametrize(("kind", "size"), [("mp4", (1920, 1080)), ("webm", (1280, 720))])
def test_long_videos_are_encoded_faster(kind: str, size: tuple[int, int]) -> None:
    short, small = presets.kind(kind, size, 100)
    long, still_small = presets.kind(kind, size, 100_000)
    assert (small, still_small) == (True, False)
    assert short.options != long.options == KINDS[kind].options


def test_a_result_larger_than_its_source_is_reported(tmp_path: Path, film: Path) -> None:
    context = Recorder(tmp_path)
    inputs = {"operation": "transcode-mp4", "width": 1280}
    EncodeEngine().run(Task("p", "media-encode", inputs, {"media": film}), context)
    (line,) = context.logs
    assert "more than the" in line


def optimize(folder: Path, source: Path, **inputs: Any) -> Result:
    return OptimizerEngine().run(
        Task("p", "media-optimizer", {**USUAL, **inputs}, {"media": source}), Recorder(folder)
    )


def test_every_width_up_to_the_original_is_encoded(tmp_path: Path, picture: Path) -> None:
    result = optimize(
        tmp_path, picture, operation="image-responsive", formats="webp,avif,jpeg", widths="100,160,900"
    )
    names = [str(artifact.info["name"]) for artifact in result.artifacts]
    assert names == [f"image-{width}.{kind}" for width in (100, 160) for kind in ("webp", "avif", "jpg")]
    for artifact, row in zip(result.artifacts, result.data["files"], strict=True):
        assert artifact.path is not None
        with Image.open(artifact.path) as image:
            assert image.size == (row["width"], row["height"])
        assert row["bytes"] == artifact.path.stat().st_size
        assert row["saved_percent"] == round(100 * (1 - row["bytes"] / picture.stat().st_size), 1)
    assert result.data["srcset"]["webp"] == "image-100.webp 100w, image-160.webp 160w"


def test_higher_quality_gives_a_larger_file(tmp_path: Path, picture: Path) -> None:
    sizes = [
        optimize(tmp_path, picture, operation="image-responsive", quality=quality, widths="160").data[
            "files"
        ][0]["bytes"]
        for quality in (20, 95)
    ]
    assert sizes[0] * 2 < sizes[1]


def test_formats_look_equal_and_are_smaller_than_a_jpeg(tmp_path: Path, photograph: Path) -> None:
    result = optimize(
        tmp_path, photograph, operation="image-responsive", formats="webp,avif,jpeg", widths="200"
    )
    webp, avif, jpeg = result.data["files"]
    assert jpeg["quality"] == USUAL["quality"]
    assert jpeg["ssim"] <= webp["ssim"] < jpeg["ssim"] + 0.02
    assert jpeg["ssim"] <= avif["ssim"] < jpeg["ssim"] + 0.02
    assert avif["bytes"] < jpeg["bytes"] > webp["bytes"]


def test_files_larger_than_their_source_are_reported(tmp_path: Path, photograph: Path) -> None:
    context = Recorder(tmp_path)
    inputs = {**USUAL, "operation": "image-responsive", "formats": "jpeg", "widths": "200", "quality": 100}
    result = OptimizerEngine().run(Task("p", "media-optimizer", inputs, {"media": photograph}), context)
    assert result.data["files"][0]["saved_percent"] < 0
    assert [line.split()[0] for line in context.logs] == ["image-200.jpg"]


def test_smallest_format_and_a_universal_one_are_chosen(tmp_path: Path, picture: Path) -> None:
    result = optimize(tmp_path, picture, operation="image-cdn-auto", formats="webp,avif", widths="300")
    assert result.data["picked"]["300"] in ("webp", "avif")
    assert result.data["fallback"] == "image-300.jpg"
    assert {row["format"] for row in result.data["files"]} == {result.data["picked"]["300"], "jpeg"}


def test_ladder_of_renditions_is_av1_and_never_enlarged(tmp_path: Path, film: Path) -> None:
    result = optimize(tmp_path, film, operation="video-av1-ladder", heights="64,720", formats="webm,mp4")
    assert [artifact.info["name"] for artifact in result.artifacts] == ["video-64.webm", "video-64.mp4"]
    for artifact in result.artifacts:
        with av.open(str(artifact.path)) as container:
            video = container.streams.video[0]
            assert (video.codec_context.name.removeprefix("lib"), video.height) in (
                ("dav1d", 64),
                ("av1", 64),
            )


def test_invalid_media_and_sizes_are_refused(tmp_path: Path, film: Path, picture: Path) -> None:
    for source, inputs in (
        (film, {"operation": "image-responsive"}),
        (picture, {"operation": "image-responsive", "widths": "5"}),
        (picture, {"operation": "image-responsive", "formats": "bmp"}),
        (picture, {"operation": "video-av1-ladder"}),
    ):
        with pytest.raises(UnusableInput):
            optimize(tmp_path, source, **inputs)
