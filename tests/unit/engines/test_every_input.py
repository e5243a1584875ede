"""Every input of every template: equal inputs give equal bytes, and another value gives other bytes.

What exactly an input does is for its engine's own tests. What is left out here is named, with its reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.catalog.engines import Task
from sixfold.engines.audio import files as audio_files
from sixfold.engines.video import encode, yuv
from sixfold.settings import Settings
from sixfold.worker import runner
from tests.harness.cases import nightly_after
from tests.unit.engines import engine_runs

CATALOGUE = app_catalog.catalog(Settings(), app_catalog.price_table(Settings()))
FILES = {"image", "mask", "audio", "video", "media", "voice_sample"}

# The usual inputs of each template, and another value for each of them.
SMALL = {"prompt": "a red fox on a meadow", "width": 256, "height": 256, "seed": 3}
NATIVE = {"prompt": "hills", "negative_prompt": "fox", "width": 272, "height": 272, "num_inference_steps": 9}
# Their runs take 8 to 20 s.
SLOW = ("video-t2v", "image-to-3d-voxel", "world-model")
CASES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "anime-image": (
        {"prompt": SMALL["prompt"], "seed": 3, "output_format": "png"},
        {
            **NATIVE,
            "width": 512,
            "height": 512,
            "num_inference_steps": 50,
            "guidance_scale": 8,
            "seed": 4,
            "output_format": "jpeg",
        },
    ),
    "fast-image-space": (SMALL, {**NATIVE, "seed": 4}),
    "fast-image-native": (SMALL, {**NATIVE, "seed": 4, "output_format": "png"}),
    "video-fx": ({"video": "film"}, {"video": "other", "num_levels": 3, "output_codec": "av1_hw"}),
    "world-model": ({"prompt": "islands", "steps": 2}, {"prompt": "forest", "keys": "w", "steps": 9}),
    "motion-model": ({"prompt": "walk", "steps": 9}, {"prompt": "run", "steps": 8}),
    "tts-a": (
        {"input": "One."},
        {"input": "Two.", "voice": "ben", "response_format": "wav", "speed": 2, "language": "fr"},
    ),
    "tts-b": ({"text": "One."}, {"text": "Two.", "voice": "ben", "format": "opus"}),
    "tts-b-gpu": ({"text": "One."}, {"text": "Two.", "voice": "ben", "format": "wav"}),
    "piano": (
        {"bars": 1, "tempo": 220},
        {"model": "open-piano-jazz", "sound": "felt", "bars": 2, "tempo": 120, "key": "D", "seed": 5},
    ),
    "stem-separator": ({"audio": "tone"}, {"audio": "noise", "stems": "four", "format": "wav"}),
    "upscaler": ({"image": "one"}, {"image": "two", "scale": 2, "model": "anime"}),
    "bg-remover": ({"image": "one"}, {"image": "two"}),
    "depth-fx": (
        {"image": "one", "seconds": 1},
        {"image": "two", "effect": "heatmap", "strength": 0.9, "seconds": 2},
    ),
    "inpaint-cleaner": (
        {"image": "one", "mask": "spot"},
        {"image": "two", "mask": "stain", "grow": 1, "feather": 0},
    ),
    "image-to-3d-voxel": (
        {"image": "one", "style": "voxel48", "mc_resolution": 128},
        {"image": "two", "style": "voxel32", "foreground_ratio": 0.6, "mc_resolution": 192},
    ),
    "vectorizer": (
        {"image": "one"},
        {"image": "two", "preset": "pixel", "speckle": 40, "color_precision": 3},
    ),
    "media-encode": (
        {"media": "film", "operation": "gif"},
        {"media": "other", "operation": "thumbnail", "width": 32, "start": 0.5, "duration": 0.25},
    ),
    "media-optimizer": (
        {"media": "one", "operation": "image-responsive", "widths": "40"},
        {"media": "two", "operation": "image-cdn-auto", "widths": "48", "formats": "jpeg", "quality": 20},
    ),
    "embeddings": ({"texts": "a fox\na boat"}, {"texts": "a river", "normalize": False}),
    "video-t2v": (
        {"prompt": "a red fox on a meadow, pan left", "seed": 5},
        {
            "prompt": "waves on a beach",
            "negative_prompt": "fox",
            "num_frames": 17,
            "resolution": "480x832",
            "steps": 50,
            "guidance": 9,
            "seed": 6,
            "cache_accel": False,
        },
    ),
}
# Values below the minimum of a request, which an engine accepts.
SMALLER: Mapping[str, dict[str, Any]] = {
    "anime-image": {"width": 256, "height": 256},
    "video-t2v": {"num_frames": 5},
}
# Inputs that other tests check, or that no embedded engine reads.
ELSEWHERE = {
    ("fast-image-space", "randomize_seed"): "settled before an engine: tests/api/test_template_images.py",
    ("tts-a", "voice_sample"): "wants weights: tests/unit/engines/speech/test_weights.py",
    ("tts-b", "voice_sample"): "the same",
    ("tts-b-gpu", "voice_sample"): "the same",
    ("piano", "policy_url"): "another engine's: tests/unit/engines/audio/test_policy.py",
    ("stem-separator", "model"): "names weights: tests/unit/engines/audio/test_stems.py",
    ("upscaler", "face_enhance"): "wants weights, else a 503: tests/api/test_template_images.py",
    ("bg-remover", "model"): "names weights: tests/api/test_template_images.py",
    ("bg-remover", "box"): "marks a subject: tests/unit/engines/test_guided_matting.py",
    ("bg-remover", "points"): "the same",
    ("bg-remover", "mask"): "the same",
    ("media-optimizer", "heights"): "a film's: tests/unit/engines/test_encode.py",
    ("video-t2v", "image"): "ignored, as the contract says: tests/unit/engines/video/test_fx.py",
}
# Every input of these templates has a separate test, because their runs are slow.
WHOLE = {
    "text-llm": "tests/api/test_hosting_text.py",
    "speech-to-speech": "tests/api/test_speech_to_speech.py",
    "music-diffusion": "tests/unit/engines/audio/test_music.py",
    "song-gen": "tests/unit/engines/audio/test_song.py",
    "image-to-3d-pbr": "tests/unit/engines/three_d/test_image_to_3d.py",
}


@pytest.fixture(scope="module")
def input_files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("kept")
    mask = np.zeros((64, 64), np.uint8)
    mask[20:30, 20:30] = 255
    wave = np.sin(np.arange(24_000) * 0.05).astype(np.float32) * 0.4
    noise = np.random.default_rng(1).normal(0, 0.1, (2, 24_000)).astype(np.float32)
    paths = {
        "one": engine_runs.saved(folder / "one.png", engine_runs.scenery((64, 64))),
        "two": engine_runs.saved(folder / "two.png", engine_runs.scenery((64, 64), 2)),
        "spot": engine_runs.saved(folder / "spot.png", mask),
        "stain": engine_runs.saved(folder / "stain.png", mask.T[::-1]),
        "tone": audio_files.write(np.stack([wave, wave]), "wav", folder / "tone.wav").path,
        "noise": audio_files.write(noise, "wav", folder / "noise.wav").path,
        "film": moving_video(folder / "film.mp4", engine_runs.scenery((48, 64))),
        "other": moving_video(folder / "other.mp4", engine_runs.scenery((48, 64), 2)),
    }
    return {name: path for name, path in paths.items() if path is not None}


def moving_video(path: Path, picture: Any) -> Path:
    """Return a video of one second of an image that moves to the left."""
    with encode.VideoEncoder(path, (64, 48), Fraction(8), None) as video:
        for at in range(8):
            video.add(yuv.of_rgb(np.ascontiguousarray(np.roll(picture, -4 * at, axis=1))))
    return path


def output_digest(
    template: str, folder: Path, input_files: Mapping[str, Path], fields: Mapping[str, Any]
) -> str:
    """Return a digest of all outputs of the template's embedded engine for these inputs."""
    model = CATALOGUE[template]
    files = {name: input_files[fields[name]] for name in FILES & fields.keys()}
    checked = model.check({**fields, **dict.fromkeys(files, "https://example.com/file")})
    checked |= {name: value for name, value in SMALLER.get(template, {}).items() if name not in fields}
    engine = next(engine for engine in model.engines if engine.kind == "embedded")
    task = Task("t", template, model.for_engine(checked), files)
    result = runner.load(engine.factory, engine.options).run(task, engine_runs.RunContext(folder))
    text = hashlib.sha256(json.dumps(dict(result.data), sort_keys=True, default=str).encode())
    for artifact in result.artifacts:
        text.update(f"{artifact.content_type} {artifact.info.get('name')}".encode())
        text.update(artifact.data if artifact.path is None else artifact.path.read_bytes())
    return text.hexdigest()


@pytest.mark.parametrize("template", nightly_after(len(CASES) - len(SLOW), sorted(CASES, key=SLOW.count)))
def test_each_input_has_an_effect_and_output_is_deterministic(
    template: str, tmp_path: Path, input_files: Mapping[str, Path]
) -> None:
    usual, others = CASES[template]
    once = output_digest(template, tmp_path, input_files, usual)
    assert output_digest(template, tmp_path, input_files, usual) == once
    for name, value in others.items():
        assert output_digest(template, tmp_path, input_files, {**usual, name: value}) != once, name


def test_every_template_and_input_has_a_case() -> None:
    requests = {(name, each) for name, (_, others) in CASES.items() for each in others}
    inputs = {(name, each.name) for name in CASES for each in CATALOGUE[name].inputs}
    assert (requests | set(ELSEWHERE), requests & set(ELSEWHERE)) == (inputs, set())
    assert CASES.keys() | WHOLE.keys() == {template.name for template in app_catalog.templates()}
