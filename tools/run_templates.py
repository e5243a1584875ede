"""Run every template of a server once, save its outputs, and print a table.

Templates that are not in `RUNS` run with the inputs of their example in `data/models`.

    SIXFOLD_API_KEY=sf_... python tools/run_templates.py FOLDER

The server's address is SIXFOLD_URL, or http://127.0.0.1:8600. Input files are outputs of other
templates, or are drawn by this program.
"""

from __future__ import annotations

import base64
import json
import math
import os
import struct
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sixfold.app import catalog as app_catalog
from sixfold.core.provenance.formats import png

SERVER = os.environ.get("SIXFOLD_URL", "http://127.0.0.1:8600")
KEY = os.environ.get("SIXFOLD_API_KEY", "")

# Each template follows the templates that it depends on; `$name` is the output file of template `name`.
RUNS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("anime-image", {"prompt": "a girl with a red umbrella on a bridge, spring", "seed": 4}),
    ("fast-image-native", {"prompt": "a red apple on a white table", "width": 640, "height": 640, "seed": 7}),
    (
        "fast-image-space",
        {"prompt": "a fishing village under snowy mountains", "width": 768, "height": 512, "seed": 3},
    ),
    ("upscaler", {"image": "$fast-image-space", "scale": 2}),
    ("bg-remover", {"image": "$object"}),
    ("depth-fx", {"image": "$fast-image-space", "effect": "parallax", "seconds": 2}),
    ("inpaint-cleaner", {"image": "$fast-image-space", "mask": "$mask"}),
    ("vectorizer", {"image": "$object", "preset": "logo"}),
    ("image-to-3d-voxel", {"image": "$object", "style": "voxel32"}),
    ("image-to-3d-pbr", {"image": "$object", "texture_size": 1024, "resolution": 1024, "seed": 1}),
    ("video-t2v", {"prompt": "waves on a beach at dawn, the camera pans left", "num_frames": 33, "seed": 5}),
    ("video-fx", {"video": "$video-t2v", "num_levels": 6}),
    ("piano", {"bars": 4, "seed": 11}),
    ("music-diffusion", {"prompt": "slow ambient pads over a soft beat", "duration": 10}),
    (
        "song-gen",
        {
            "style": "folk",
            "lyrics": "[Verse]\nDown by the river\n[Chorus]\nHome again",
            "semantic_max_tokens": 400,
        },
    ),
    ("stem-separator", {"audio": "$music-diffusion"}),
    ("media-encode", {"media": "$video-t2v", "operation": "gif", "width": 240}),
    (
        "media-optimizer",
        {"media": "$fast-image-native", "operation": "image-responsive", "widths": "160,320"},
    ),
    ("tts-a", {}),
    ("tts-b", {"text": "Good morning, and welcome aboard.", "voice": "grace"}),
    ("tts-b-gpu", {"text": "Guten Morgen.", "voice": "anna"}),
    ("speech-to-speech", {"task": "transcribe", "audio": "$tts-b"}),
    ("embeddings", {"texts": "a lighthouse\na fishing boat"}),
    ("text-llm", {"prompt": "Say hello."}),
)

SPOTS = (
    (-0.3, -0.2, 0.1),
    (0.02, -0.42, 0.12),
    (0.3, -0.16, 0.09),
    (-0.08, -0.1, 0.07),
)  # x, y and radius on the mushroom


def main() -> None:
    """Run the templates and print a row for each."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "templates")
    folder.mkdir(parents=True, exist_ok=True)
    result = {"$mask": _png(768, 512, _disc), "$object": _png(512, 512, _mushroom)}
    print(f"{'template':20}{'engine':22}{'quality':9}{'seconds':>8}  {'USD':<10}output")
    for name, inputs in _runs():
        began = time.monotonic()
        status, prediction = _run(name, {key: result.get(str(value), value) for key, value in inputs.items()})
        seconds = time.monotonic() - began
        if status != 200 or prediction["status"] != "succeeded":
            print(f"{name:20}{prediction.get('error', '')}")
            continue
        saved = _save(folder, name, prediction["output"])
        if saved:
            result[f"${name}"] = saved[0][0]
        names = ", ".join(path.name for _, path in saved)
        print(
            f"{name:20}{prediction['engine']:22}{prediction['quality']:9}{seconds:8.1f}"
            f"  {prediction['cost']:<10}{names}"
        )


def _runs() -> list[tuple[str, Mapping[str, Any]]]:
    """Return the inputs of each template of the server, those of `RUNS` first."""
    examples = app_catalog.examples()
    with urllib.request.urlopen(f"{SERVER}/api/containers/templates") as response:  # noqa: S310 - the operator's own server
        templates = [template["name"] for template in json.load(response)["templates"]]
    known = {name for name, _ in RUNS}
    others = [name for name in templates if name not in known and name in examples]
    return [*RUNS, *((name, examples[name]) for name in others)]


def _run(model: str, inputs: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"model": model, "input": inputs, "wait": 600}).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{SERVER}/api/containers/run", body, headers)  # noqa: S310 - the operator's own server
    try:
        with urllib.request.urlopen(request) as response:  # noqa: S310 - the operator's own server
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def _save(folder: Path, name: str, output: Any) -> list[tuple[str, Path]]:
    """Save each file of an output, or its data as JSON; return the URLs and paths of the files."""
    saved: list[tuple[str, Path]] = []
    for number, media in enumerate(_media(output)):
        path = folder / f"{name}{f'-{number}' if number else ''}{Path(media['url']).suffix}"
        with urllib.request.urlopen(media["url"]) as response:  # noqa: S310 - the URL is from the operator's server
            path.write_bytes(response.read())
        saved.append((media["url"], path))
    if not saved:
        (folder / f"{name}.json").write_text(json.dumps(output, indent=1), "utf-8")
    return saved


def _media(output: Any) -> list[dict[str, Any]]:
    if isinstance(output, dict):
        return (
            [output] if "url" in output else [media for value in output.values() for media in _media(value)]
        )
    return [media for value in output for media in _media(value)] if isinstance(output, list) else []


def _disc(x: float, y: float) -> tuple[int, int, int]:
    return (255, 255, 255) if math.hypot(x, y) < 1 / 4 else (0, 0, 0)


def _mushroom(x: float, y: float) -> tuple[int, int, int]:
    """Return the color of a mushroom on a plain background, for cut-outs, vectors and 3D models."""
    cap = math.hypot(x / 0.62, (y + 0.08) / 0.56)
    light = 1.15 - 0.5 * abs(x + 0.2) / 0.62
    if y < 0.02 and cap < 1:
        spot = any(math.hypot(x - at, y - up) < size for at, up, size in SPOTS)
        tone, light = ((240, 232, 220) if spot else (196, 36, 30)), light - 0.35 * cap**4
    elif 0.02 <= y < 0.66 and abs(x) < 0.17 + 0.06 * y * y:
        tone, light = (226, 208, 178), 1.05 - 1.3 * abs(x + 0.06)
    else:
        tone, light = (214, 226, 232), 1 - 0.08 * y
    red, green, blue = (min(255, max(0, round(part * light))) for part in tone)
    return red, green, blue


def _png(width: int, height: int, paint: Callable[[float, float], tuple[int, int, int]]) -> str:
    """Return an image as a data URI; `paint` gets coordinates from -1 to 1 along the shorter side."""
    half = min(width, height) / 2
    rows = b"".join(
        b"\0"
        + bytes(
            part
            for x in range(width)
            for part in paint((x + 0.5 - width / 2) / half, (y + 0.5 - height / 2) / half)
        )
        for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    data = png.SIGNATURE + b"".join(png.chunk(kind, body) for kind, body in parts)
    return "data:image/png;base64," + base64.b64encode(data).decode()


if __name__ == "__main__":
    main()
