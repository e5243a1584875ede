"""Run every built-in workflow of a server once, save its outputs, and print a table.

    SIXFOLD_API_KEY=sf_... python tools/run_workflows.py FOLDER [SLUG ...]

The server's address is SIXFOLD_URL, or http://127.0.0.1:8600. The exit status is 1 unless every
workflow succeeds or responds with 503 `engine_unavailable`. Input files are outputs of other workflows.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SERVER = os.environ.get("SIXFOLD_URL", "http://127.0.0.1:8600")
KEY = os.environ.get("SIXFOLD_API_KEY", "")

# Each workflow follows the workflows that it depends on; `$slug` is the output file of workflow `slug`.
RUNS: Mapping[str, Mapping[str, Any]] = {
    "api-contract": {"text": "hello"},
    "voice-clone-tts": {"speech": "The tide comes in at seven.", "seed": 3},
    "speech-to-text": {"audio_path": "$voice-clone-tts"},
    "photoreal-text-to-image": {},
    "stylized-text-to-image": {"prompt": "a lighthouse in a storm", "width": 768, "height": 512, "seed": 5},
    "lora-text-to-image": {"prompt": "a fox in a birch forest, papercut"},
    "turbo-text-to-image": {"prompt": "a red sailing boat on a calm lake", "width": 768, "height": 512},
    "photoreal-img2img": {"image": "$turbo-text-to-image", "prompt": "deep winter, snow", "denoise": 0.6},
    "image-upscale": {"image": "example.png"},
    "edge-style-transfer": {},
    "edge-style-node": {"image": "$stylized-text-to-image", "prompt": "watercolour"},
    "line-control": {"image": "$turbo-text-to-image", "prompt": "an old engraving"},
    "text-to-video": {},
    "image-to-video": {},
    "video-to-video": {
        "video": "$video",
        "reference_image": "$turbo-text-to-image",
        "prompt": "a pencil drawing that moves",
    },
    "sound-effects": {"prompt": "rain on a roof, distant thunder", "duration_seconds": 4},
    "text-to-3d": {"prompt": "a small wooden house"},
    "image-to-3d": {"image": "$turbo-text-to-image"},
}
_FINAL_STATES = ("succeeded", "failed", "canceled", "expired")


def main() -> int:
    """Run the workflows on the command line, or all; return the exit status."""
    folder, slugs = Path(sys.argv[1] if len(sys.argv) > 1 else "spaces"), sys.argv[2:] or list(RUNS)
    folder.mkdir(parents=True, exist_ok=True)
    urls = {"$video": _source_video()} if "video-to-video" in slugs else {}
    passed = True
    print(f"{'space':26}{'quality':9}{'seconds':>8}  {'USD':<8}output")
    for slug in slugs:
        began = time.monotonic()
        inputs = {name: urls.get(str(value), value) for name, value in RUNS[slug].items()}
        status, response = _run(slug, inputs)
        passed &= response.get("status") == "succeeded" or response.get("code") == "engine_unavailable"
        files = list(_files(response.get("output")))
        if files:
            urls[f"${slug}"] = files[0]["url"]
        names = [_save(folder, slug, number, file) for number, file in enumerate(files)]
        text = ", ".join(names) or str(response.get("output") or response.get("error"))
        seconds, cost = time.monotonic() - began, response.get("cost", "")
        print(
            f"{slug:26}{response.get('quality', status):9}{seconds:>8.1f}  {cost:<8}{text[:150]}", flush=True
        )
    return 0 if passed else 1


def _source_video() -> str:
    """Return the URL of a short input video; the outputs of workflows are animated images instead."""
    inputs = {"prompt": "waves on a beach at dawn, the camera pans left", "num_frames": 17, "seed": 5}
    _, response = _request(
        "POST", "/api/containers/run", {"model": "video-t2v", "input": inputs, "wait": 600}
    )
    return str(response["output"]["url"])


def _run(slug: str, inputs: Mapping[str, Any]) -> tuple[str, Any]:
    status, response = _request("POST", f"/api/graph/spaces/{slug}/run", {"input": inputs, "wait": 600})
    while status in ("200", "202") and response["status"] not in _FINAL_STATES:
        time.sleep(1)
        status, response = _request("GET", f"/api/containers/predictions/{response['id']}")
    return status, response


def _request(method: str, path: str, body: Any = None) -> tuple[str, Any]:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data, headers, method=method)  # noqa: S310 - the operator's own server
    try:
        with urllib.request.urlopen(request, timeout=700) as response:  # noqa: S310 - the operator's own server
            return str(response.status), json.load(response)
    except urllib.error.HTTPError as error:
        return str(error.code), json.load(error)


def _files(output: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(output, dict) and "url" in output:
        yield output
    elif isinstance(output, dict | list):
        for each in output.values() if isinstance(output, dict) else output:
            yield from _files(each)


def _save(folder: Path, slug: str, number: int, file: Mapping[str, Any]) -> str:
    path = folder / f"{slug}{f'-{number}' if number else ''}.{file['url'].rsplit('.', 1)[1]}"
    with urllib.request.urlopen(file["url"], timeout=60) as response:  # noqa: S310 - the operator's own server
        path.write_bytes(response.read())
    facts = {key: value for key, value in file.items() if key in ("width", "height", "duration", "fps")}
    return f"{path.name} {path.stat().st_size // 1024} KiB {facts or ''}"


if __name__ == "__main__":
    sys.exit(main())
