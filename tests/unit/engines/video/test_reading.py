"""Reading of videos and audio: format, duration, and the frame at a time."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.video import encode, headers
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack, VideoReader
from tests.api.media_samples import wav, wave, write_video
from tests.corpora import tricks


def counting(path: Path, kind: str = "mp4", frames: int = 30, rate: int = 10) -> Path:
    """Write a video whose brightness identifies the frame."""
    with encode.VideoEncoder(path, (32, 32), Fraction(rate), None, encode.KINDS[kind]) as result:
        for number in range(frames):
            result.add(np.full((32, 32, 3), 8 * number, np.uint8))
    return path


@pytest.mark.parametrize("kind", ["mp4", "webm"])
@pytest.mark.parametrize("begin", [0.0, 1.25])
def test_reader_returns_the_frame_at_a_time(tmp_path: Path, kind: str, begin: float) -> None:
    reel = VideoReader(counting(tmp_path / "film", kind), begin)
    shades = [reel.pixels(reel.at(begin + step / 10), (8, 8)).mean() / 8 for step in range(10)]
    first = int(begin * 10)
    assert np.abs(np.array(shades) - np.arange(first, first + 10)).max() < 0.6
    assert not reel.ends_before(2.9)
    assert reel.ends_before(3.01)
    assert reel.pixels(reel.at(9.0), (8, 8)).mean() / 8 == pytest.approx(29, abs=0.6)
    reel.close()


def test_rotation_of_a_video_is_applied(tmp_path: Path) -> None:
    path = write_video(tmp_path / "film.mp4", size=(64, 48))
    turned = bytearray(path)
    # The position of the matrix of a video track.
    at = turned.index(b"tkhd") + 4 + 40
    turned[at : at + 36] = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 48 << 16, 0, 1 << 30)
    (tmp_path / "turned.mp4").write_bytes(turned)
    reel = VideoReader(tmp_path / "turned.mp4")
    assert reel.size(reel.at(0)) == (48, 64)
    assert reel.pixels(reel.at(0), (24, 32)).shape == (32, 24, 3)
    reel.close()


def test_alpha_of_a_video_is_kept(tmp_path: Path) -> None:
    image = np.dstack([np.full((32, 32, 3), 200, np.uint8), np.zeros((32, 32), np.uint8)])
    image[:, 16:, 3] = 255
    for kind in ("webm-cover", "mov-cover"):
        path = tmp_path / kind
        with encode.VideoEncoder(path, (32, 32), Fraction(10), None, encode.KINDS[kind]) as output:
            for _ in range(3):
                output.add(image)
        reel = VideoReader(path)
        result = reel.pixels(reel.at(0.2), (32, 32))
        assert result.shape == (32, 32, 4), kind
        assert result[:, 20:, 3].min() > 240
        assert result[:, :12, 3].max() < 15
        reel.close()


@pytest.mark.parametrize("speed", [0.25, 1.0, 3.0])
def test_voice_starts_at_its_time_and_is_followed_by_silence(tmp_path: Path, speed: float) -> None:
    path = tmp_path / "steps.wav"
    data = wav(3.0, 440)
    header, samples = data[:44], np.frombuffer(data[44:], "<i2").copy().reshape(-1, 2)
    samples[:48_000] = 0
    path.write_bytes(header + samples.tobytes())
    voice = AudioTrack(path, 0.5, speed)
    quiet = round(0.5 / speed * 48_000)
    content = voice.read(quiet + round(2.0 / speed * 48_000) + 48_000)
    onset = int(np.argmax(np.abs(content[0]) > 0.05))
    assert abs(onset - quiet) < 0.03 * max(1.0, 1 / speed) * 48_000
    assert np.abs(content[:, -24_000:]).max() < 0.01
    voice.close()


def test_durations_are_read_from_headers(tmp_path: Path) -> None:
    files = {
        "a.mp4": write_video(tmp_path / "m", frames=25, rate=10),
        "b.webm": counting(tmp_path / "w", "webm").read_bytes(),
        "c.wav": wav(1.5, 440, rate=8_000, channels=1),
    }
    for (name, data), seconds in zip(files.items(), (2.5, 3.0, 1.5), strict=True):
        (tmp_path / name).write_bytes(data)
        assert headers.seconds(tmp_path / name, "audio") == pytest.approx(seconds, abs=0.03), name
    flac = tmp_path / "d.flac"
    with av.open(str(flac), "w", format="flac") as container:
        stream = container.add_stream("flac", rate=48_000, layout="stereo")
        samples = (wave(0.5, 440) * 32767).astype(np.int16).T.reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), format="s16", layout="stereo")
        frame.sample_rate = 48_000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    assert headers.seconds(flac, "audio") == pytest.approx(0.5, abs=0.01)


def test_truncated_header_gives_no_or_a_plausible_duration(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    for data in (write_video(tmp_path / "m"), counting(tmp_path / "w", "webm").read_bytes(), wav(1.0, 440)):
        for end in range(16, 600, 13):
            path.write_bytes(data[:end])
            response = headers.seconds(path, "audio")
            assert response is None or 0 < response <= 3.1


def test_invalid_video_is_refused_before_a_demuxer_opens_it(tmp_path: Path) -> None:
    for name, data in tricks.files("http://127.0.0.1:9").items():
        path = tmp_path / "trick.mp4"
        path.write_bytes(data)
        for reader in (VideoReader, AudioTrack):
            with pytest.raises((UnusableInput, NoAudioTrack)):
                reader(path)
        assert name in tricks.NAMES


def test_video_without_audio_has_no_audio_track(tmp_path: Path) -> None:
    write_video(tmp_path / "mute.mp4")
    with pytest.raises(NoAudioTrack):
        AudioTrack(tmp_path / "mute.mp4")
    (tmp_path / "sound.wav").write_bytes(wav(0.2, 440))
    with pytest.raises(UnusableInput, match="is not a video"):
        VideoReader(tmp_path / "sound.wav")
