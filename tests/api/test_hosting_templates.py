"""Public routes of the container API: every field of the responses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.app_fixture import AppFixture, bearer, running_app

CONFIG = "/api/containers/config"
TEMPLATES = "/api/containers/templates"

# name, hardware, idleSeconds, minVramGb, diskGb, serverless, priceHourText, outputKind
TABLE = """
text-llm          gpu-32gb    20  32  80   no  $1.42 text
anime-image       gpu-48gb-b  180 48  80   yes $1.65 image
fast-image-space  gpu-80gb-b  180 60  80   no  $4.78 image
fast-image-native gpu-80gb-b  180 60  80   no  $4.78 image
video-fx          gpu-24gb-a  n/a n/a n/a  no  $0.35 video
world-model       gpu-24gb-b  120 20  n/a  no  $0.54 image
motion-model      gpu-24gb-b  120 20  n/a  no  $0.54 json
tts-a             gpu-24gb-a  30  16  n/a  yes $0.42 audio
tts-b             gpu-24gb-a  60  n/a n/a  no  $0.35 audio
tts-b-gpu         gpu-24gb-a  60  n/a n/a  no  $0.35 audio
piano             gpu-24gb-a  30  n/a 2    yes $0.42 audio
music-diffusion   gpu-80gb-a  180 24  40   no  $2.62 audio
song-gen          gpu-24gb-b  10  24  40   yes $0.65 audio
stem-separator    gpu-24gb-a  120 8   n/a  no  $0.35 file
upscaler          gpu-24gb-a  90  8   n/a  no  $0.35 image
bg-remover        gpu-24gb-a  60  n/a n/a  no  $0.35 image
depth-fx          gpu-24gb-a  60  4   n/a  no  $0.35 file
inpaint-cleaner   gpu-24gb-a  60  4   n/a  no  $0.35 image
image-to-3d-voxel gpu-24gb-a  90  8   20   no  $0.35 file
image-to-3d-pbr   gpu-24gb-b  120 24  40   no  $0.54 model3d
vectorizer        gpu-24gb-a  30  n/a n/a  no  $0.35 file
speech-to-speech  gpu-24gb-b  300 20  n/a  no  $0.54 json
media-encode      gpu-16gb-a  120 n/a n/a  no  $0.30 file
media-optimizer   gpu-24gb-b  90  n/a n/a  no  $0.54 json
embeddings        gpu-16gb-a  120 n/a n/a  no  $0.30 json
video-t2v         gpu-48gb-b  300 40  200  no  $1.38 video
"""

# name, type, default, required, min, max, choices: `-` is none
INPUTS = """
text-llm: prompt string - req - - | system string - - - - | image image - - - - |
  max_tokens integer 1024 - 1 32768 | temperature number 0.7 - 0 2 | top_p number 0.8 - 0 1
anime-image: prompt string - req - - | negative_prompt string - - - - | width integer 832 - 512 1536 |
  height integer 1216 - 512 1536 | num_inference_steps integer 28 - 10 50 | guidance_scale number 4 - 1 8 |
  seed integer -1 - -1 2147483647 | output_format string webp - - - webp,png,jpeg
fast-image-space: prompt string - req - - | negative_prompt string - - - - | width integer 1024 - 256 2048 |
  height integer 1024 - 256 2048 | num_inference_steps integer 4 - 1 12 | seed integer 0 - 0 2147483647 |
  randomize_seed boolean true - - -
fast-image-native: prompt string - req - - | negative_prompt string - - - - | width integer 1024 - 256 2048 |
  height integer 1024 - 256 2048 | num_inference_steps integer 4 - 1 12 | seed integer -1 - -1 2147483647 |
  output_format string webp - - - webp,png,jpeg
video-fx: video video - req - - | num_levels integer 25 - 2 256 |
  output_codec string h264_hw - - - h264_hw,av1_hw
world-model: prompt string - - - - | keys string - - - - | steps integer 1 - 1 64
motion-model: prompt string - - - - | steps integer 40 - 1 400
tts-a: input string * req - - | voice string - - - - | voice_sample audio - - - - |
  response_format string mp3 - - - mp3,opus,wav | speed number 1 - 0.25 4 | language string - - - -
tts-b: text string - req - - | voice string ava - - - * | voice_sample audio - - - - |
  format string mp3 - - - mp3,opus,wav
tts-b-gpu: text string - req - - | voice string ava - - - * | voice_sample audio - - - - |
  format string mp3 - - - mp3,opus,wav
piano: model string open-piano-baroque - - - open-piano-baroque,open-piano-jazz,open-piano-minimal |
  sound string studio - - - felt,studio,bright | bars integer 8 - 1 32 | tempo integer 108 - 40 220 |
  key string C - - - C,D,E,F,G,A,B | seed integer 17 - 0 2147483647 | policy_url string - - - -
music-diffusion: prompt string - req - - | lyrics string [Instrumental] - - - | duration integer 30 - 10 300 |
  bpm integer 120 - 40 240 | key string * - - - | seed integer 17 - 0 2147483647 | steps integer 8 - 1 20
song-gen: style string - req - - | lyrics string - req - - | cot string full - - - full,melody,off |
  seed integer 831001 - 0 - | abc string - - - - | cfg_scale number 0 - 0 20 | ode_steps integer 32 - 1 128 |
  semantic_max_tokens integer 9000 - 200 9000 | format string mp3 - - - mp3,wav,flac
stem-separator: audio audio - req - - | stems string two - - - two,four | format string mp3 - - - mp3,wav |
  model string htdemucs - - - htdemucs,htdemucs_ft,mdx_extra
upscaler: image image - req - - | scale integer 4 - * * 2,4 | model string general - - - general,anime |
  face_enhance boolean false - - -
bg-remover: image image - req - - |
  model string isnet-general-use - - - isnet-general-use,u2net,u2netp,isnet-anime,birefnet-general
depth-fx: image image - req - - | effect string parallax - - - parallax,depth,heatmap,normals |
  strength number 0.55 - 0.1 1 | seconds integer 3 - 1 6
inpaint-cleaner: image image - req - - | mask image - req - - | grow integer 8 - 0 64 |
  feather integer 6 - 0 32
image-to-3d-voxel: image image - req - - | style string voxel48 - - - mesh,voxel32,voxel48,voxel64 |
  foreground_ratio number 0.85 - 0.5 0.95 | mc_resolution integer 256 - * * 128,192,256
image-to-3d-pbr: image image - req - - | resolution integer 1536 - * * 1024,1536 |
  texture_size integer 2048 - * * 1024,2048,4096 | decimation_target integer 500000 - 10000 2000000 |
  remesh boolean true - - - | seed integer - - * * | fov number - - * *
vectorizer: image image - req - - | preset string poster - - - poster,logo,photo,pixel |
  speckle integer 6 - 0 64 | color_precision integer 6 - 3 8
speech-to-speech: task string converse - - - converse,transcribe,speak,chat | audio audio - - - - |
  text string - - - - | system_prompt string - - - - | history string - - - - |
  enable_reasoning boolean false - - - | audio_format string mp3 - - - mp3,wav
media-encode: media file - req - - |
  operation string transcode-mp4 req - - audio-mp3,gif,thumbnail,transcode-mp4,transcode-webm,waveform |
  width integer - - 16 4096 | start number - - * * | duration number - - * *
media-optimizer: media file - req - - |
  operation string image-responsive req - - image-responsive,image-cdn-auto,video-av1-ladder |
  widths string 320,640,960,1280 - - - | heights string 360,720,1080 - - - | formats string webp - - - |
  quality integer 85 - 1 100
embeddings: texts string - req - - | normalize boolean true - - -
video-t2v: prompt string - req - - | negative_prompt string - - - - | num_frames integer 81 - 17 121 |
  resolution string 480x480 - - - 480x480,480x832,832x480,720x1280,1280x720 | steps integer 27 - 8 50 |
  guidance number 4 - 1 10 | seed integer - - * * | cache_accel boolean true - - - | image image - - - -
"""
VOICES = """ava ben chloe dan ella finn grace henry isla jack lucia mateo sofia diego camille hugo manon louis
anna felix lena giulia marco beatriz joao ines"""


def read_declared() -> dict[str, list[list[str]]]:
    """Return the documented inputs by template."""
    result: dict[str, list[list[str]]] = {}
    for block in INPUTS.strip().replace("\n  ", " ").splitlines():
        name, _, rest = block.partition(":")
        result[name] = [[str(word) for word in part.split()] for part in rest.split("|")]
    return result


def value(text: str, kind: str) -> Any:
    """Return a default of the table as a JSON value."""
    if text == "-":
        return None
    return json.loads(text) if kind in {"integer", "number", "boolean"} else text


async def test_ignored_image_of_a_video_is_not_read(app: AppFixture) -> None:
    template = (await app.client.get("/api/containers/templates/video-t2v")).json()
    image = next(row for row in template["schema"]["inputs"] if row["name"] == "image")
    assert (image["type"], image["required"], image["default"]) == ("image", False, "")
    for image in ({}, {"image": "https://ignored.invalid/a.png"}, {"image": "none"}):
        checked = app.server.catalog["video-t2v"].check({"prompt": "a lighthouse", **image})
        assert "image" not in checked
        assert checked["negative_prompt"] == ""


async def read_configuration(app: AppFixture) -> dict[str, Any]:
    response = await app.client.get(CONFIG)
    assert response.status_code == 200
    return response.json()


async def test_configuration_has_every_documented_key(app: AppFixture) -> None:
    response = await read_configuration(app)
    assert (response["success"], response["defaultHardware"], response["defaultIdleSecs"]) == (
        True,
        "gpu-24gb-b",
        120,
    )
    assert response["outputKinds"] == ["auto", "image", "video", "audio", "json", "text", "file", "model3d"]
    assert response["queueApi"] == {
        "ensureAndRun": "/api/containers/run",
        "join": "/api/containers/{model_id}/queue/join",
        "status": "/api/containers/predictions/{prediction_id}",
    }
    assert response["sessionsApi"] == {
        "create": "/api/containers/{model_id}/sessions",
        "status": "/api/containers/sessions/{session_id}",
        "close": "/api/containers/sessions/{session_id}",
        "ws": "/ws/containers/sessions/{session_id}",
    }
    spaces = response["spacesApi"]
    assert (spaces["import"], spaces["port"], spaces["runtime"]) == (
        "/api/containers/spaces/import",
        7860,
        "webui-runtime",
    )
    assert len(spaces["accepts"]) == 2
    assert response["artifactMounts"] == {
        "inputField": "_artifacts_mounts",
        "mode": "virtual-object-store",
        "mountPath": "/mnt/sixfold/artifacts",
        "supported": True,
    }
    assert response["workflowBridge"] == {
        "node": "SixfoldTemplate",
        "templateRef": "template:{template_name}",
        "workflow": "/api/graph/spaces/api-contract/download",
    }


@pytest.mark.parametrize("path", [CONFIG, TEMPLATES])
async def test_templates_are_in_the_order_of_the_contract(app: AppFixture, path: str) -> None:
    response = (await app.client.get(path)).json()
    order = [line.split()[0] for line in TABLE.strip().splitlines()]
    assert [each["name"] for each in response["templates"]] == order


async def test_hardware_list_is_the_documented_one_in_order(app: AppFixture) -> None:
    rows = """
        gpu-80gb-a|80 GB class A|8.0|80|80|$2.62
        gpu-80gb-b|80 GB class B|9.0|80|80|$4.78
        gpu-141gb|141 GB|9.0|141|141|$6.38
        gpu-48gb-a|48 GB class A|8.6|48|48|$0.64
        gpu-48gb-b|48 GB class B|8.9|48|48|$1.38
        gpu-24gb-a|24 GB class A|8.6|24|24|$0.35
        gpu-24gb-b|24 GB class B|8.9|24|24|$0.54
        gpu-16gb-a|16 GB|7.5|16|16|$0.30
        gpu-32gb|32 GB|12.0|32|32|$1.42
    """
    response = (await app.client.get("/api/containers/hardware")).json()["hardware"]
    keys = ("id", "label", "cc", "vramGb", "ramGb", "priceHourText")
    results = ["|".join(str(entry[key]) for key in keys) for entry in response]
    assert results == [row.strip() for row in rows.strip().splitlines()]
    assert all(isinstance(entry["gpu"], str) and entry["gpu"] for entry in response)
    assert (await read_configuration(app))["hardware"] == response


async def test_templates_have_the_documented_values(app: AppFixture) -> None:
    templates = {each["name"]: each for each in (await app.client.get(TEMPLATES)).json()["templates"]}
    assert (await read_configuration(app))["templates"] == list(templates.values())
    for line in TABLE.strip().splitlines():
        name, hardware, idle, vram, disk, serverless, price, kind = line.split()
        response = templates[name]
        numbers = [None if text == "n/a" else int(text) for text in (idle, vram, disk)]
        assert [response["idleSeconds"], response["minVramGb"], response["diskGb"]] == numbers, name
        values = (
            response["hardware"],
            response["serverless"],
            response["priceHourText"],
            response["schema"]["outputKind"],
        )
        assert values == (hardware, serverless == "yes", price, kind), name
        assert response["image"] == f"sixfold/{name}"
        assert response["verified"] is False
        assert response["category"] in {"Text", "Image", "Audio", "3D", None}
        assert response["schema"]["session"] is (name in {"world-model", "motion-model"})
        assert (await app.client.get(f"{TEMPLATES}/{name}")).json() == response


def row_of(item: dict[str, Any]) -> list[Any]:
    """Return an input in the format of the documented table."""
    return [item[key] for key in ("name", "type", "default", "required", "min", "max", "choices")]


def expected_row(row: list[str], values: list[Any]) -> list[Any]:
    """Return a row of the table with its types; for `*`, with the actual value."""
    name, kind, default, required, least, most, *choices = row
    bounds = [
        was if text == "*" else (None if text == "-" else float(text))
        for text, was in ((least, values[4]), (most, values[5]))
    ]
    first = values[2] if default == "*" or (default == "-" and values[2] == "") else value(default, kind)
    known = VOICES.split() if choices == ["*"] else (choices[0].split(",") if choices else [])
    return [name, kind, first, required == "req", *bounds, known]


async def test_template_inputs_are_the_documented_ones(app: AppFixture) -> None:
    templates = {each["name"]: each for each in (await app.client.get(TEMPLATES)).json()["templates"]}
    different: dict[str, Any] = {}
    for name, rows in read_declared().items():
        messages = [row_of(item) for item in templates[name]["schema"]["inputs"]]
        orders = [item["order"] for item in templates[name]["schema"]["inputs"]]
        assert orders == list(range(len(messages))), name
        names = [row[0] for row in rows]
        if [row[0] for row in messages] != names:
            different[name] = ([row[0] for row in messages], names)
            continue
        for row, expected in zip(messages, rows, strict=True):
            if row != expected_row(expected, row):
                different[f"{name}.{row[0]}"] = (row, expected)
    assert different == {}


async def test_additional_inputs_are_listed_separately(app: AppFixture) -> None:
    schema = (await app.client.get(f"{TEMPLATES}/bg-remover")).json()["schema"]
    assert [item["name"] for item in schema["extraInputs"]] == ["box", "points", "mask"]
    others = (await app.client.get(f"{TEMPLATES}/upscaler")).json()["schema"]
    assert "extraInputs" not in others


async def test_text_template_has_variants_and_space_has_a_runtime(app: AppFixture) -> None:
    body = (await app.client.get(f"{TEMPLATES}/text-llm")).json()
    assert body["modelVariants"] == ["auto", "uncensored-gguf", "dynamic-v3"]
    assert body["defaultModelVariant"] == "auto"
    space = (await app.client.get(f"{TEMPLATES}/fast-image-space")).json()["schema"]
    assert (space["runtime"], space["apiName"]) == ("webui-runtime", "generate_image")
    assert {"spaceId", "dockerArgs"} <= space.keys()
    unknown = await app.client.get(f"{TEMPLATES}/nothing")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


async def test_configuration_is_compressed_and_has_an_etag(app: AppFixture) -> None:
    plain = await app.client.get(CONFIG, headers={"Accept-Encoding": "identity"})
    request = app.client.build_request("GET", CONFIG, headers={"Accept-Encoding": "gzip"})
    packed = await app.client.send(request, stream=True)
    raw = b"".join([piece async for piece in packed.aiter_raw()])
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(raw) == plain.content
    assert packed.headers["ETag"] != plain.headers["ETag"]
    for tag in (plain.headers["ETag"], packed.headers["ETag"], f'W/{plain.headers["ETag"]}, "x"', "*"):
        second_response = await app.client.get(CONFIG, headers={"If-None-Match": tag})
        assert (second_response.status_code, second_response.content) == (304, b"")
    other = await app.client.get(CONFIG, headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


async def test_idle_seconds_setting_overrides_every_template(tmp_path: Path) -> None:
    async with running_app(tmp_path, idle_seconds=3.0) as app:
        response = await read_configuration(app)
        assert response["defaultIdleSecs"] == 3
        assert {each["idleSeconds"] for each in response["templates"]} == {3}


@pytest.mark.parametrize(
    # Only the list of templates reads a key, because it includes the models of the account.
    ("path", "invalid_key"),
    [(CONFIG, 200), (TEMPLATES, 401), ("/api/containers/hardware", 200)],
)
async def test_public_lists_need_no_key(app: AppFixture, path: str, invalid_key: int) -> None:
    async with app.visitor("203.0.113.9", "http://example.com") as other_client:
        response: httpx.Response = await other_client.get(path)
        invalid: httpx.Response = await other_client.get(path, headers=bearer("sf_" + "x" * 43))
    assert response.status_code == 200
    assert invalid.status_code == invalid_key
