"""ComfyUI's own clients, unmodified: queue, history, files by name, and websocket messages."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import threading
import urllib.parse
import urllib.request
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

# This is websocket-client, which ComfyUI's example scripts use.
import websocket
from PIL import Image

from sixfold.app import asgi, bootstrap
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import idempotency
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.events import StateChanged
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.states import PredictionState
from sixfold.core.provenance import embed
from tests.api.app_fixture import AppFixture, client, running_app
from tests.harness import image_files
from tests.harness.embedded_server import EmbeddedServer, open_listener


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


SAMPLED = {"seed": 5, "steps": 4, "cfg": 6.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1}
PAINT: dict[str, Any] = {
    "3": node(
        "KSampler", model=["4", 0], positive=["6", 0], negative=["7", 0], latent_image=["5", 0], **SAMPLED
    ),
    "4": node("CheckpointLoaderSimple", ckpt_name="v1-5-pruned-emaonly.safetensors"),
    "5": node("EmptyLatentImage", width=96, height=64, batch_size=1),
    "6": node("CLIPTextEncode", text="a lighthouse", clip=["4", 1]),
    "7": node("CLIPTextEncode", text="text", clip=["4", 1]),
    "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
    "9": node("SaveImage", filename_prefix="made/by", images=["8", 0]),
}
SECOND = {"filename_prefix": "second", "images": ["8", 0]}


@dataclass(frozen=True)
class ComfyScript:
    """A typical blocking script of a ComfyUI client."""

    address: str
    token: str = ""

    def get(self, path: str) -> bytes:
        return urllib.request.urlopen(self._request(path), timeout=30).read()  # noqa: S310  # loopback only

    def post(self, path: str, body: Any) -> Any:
        data = json.dumps(body).encode()
        answer = urllib.request.urlopen(self._request(path, data), timeout=30).read()  # noqa: S310  # loopback only
        return json.loads(answer) if answer else None

    def _request(self, path: str, data: bytes | None = None) -> urllib.request.Request:
        # The script connects to the loopback address only.
        return urllib.request.Request(f"http://{self.address}{path}", data)

    def listening(self, client_id: str) -> websocket.WebSocket:
        socket = websocket.WebSocket()
        token = f"&token={self.token}" if self.token else ""
        socket.connect(f"ws://{self.address}/ws?clientId={client_id}{token}", timeout=30)
        return socket

    def until_done(self, socket: websocket.WebSocket, prompt_id: str) -> list[Any]:
        """Return every message up to the end of the prompt."""
        messages: list[Any] = []
        while True:
            message = socket.recv()
            if isinstance(message, bytes):
                messages.append(message)
                continue
            messages.append(json.loads(message))
            data = messages[-1]["data"]
            is_end = messages[-1]["type"] == "executing" and data["node"] is None
            if is_end and data["prompt_id"] == prompt_id:
                return messages

    def run(self, graph: Any) -> tuple[str, list[Any]]:
        """Queue a graph; return its prompt id, and every message up to its end."""
        client_id = str(uuid.uuid4())
        with contextlib.closing(self.listening(client_id)) as socket:
            prompt_id = self.post("/prompt", {"prompt": graph, "client_id": client_id})["prompt_id"]
            return prompt_id, self.until_done(socket, prompt_id)

    def images(self, graph: Any) -> tuple[list[Any], dict[str, list[bytes]]]:
        """Run a graph; return the messages, and the images that the history names."""
        prompt_id, messages = self.run(graph)
        entry = json.loads(self.get(f"/history/{prompt_id}"))[prompt_id]
        result: dict[str, list[bytes]] = {}
        for node_id, output in entry["outputs"].items():
            for image in output.get("images", ()):
                query = urllib.parse.urlencode(image)
                result.setdefault(node_id, []).append(self.get(f"/view?{query}"))
        return messages, result

    def streamed(self, graph: Any, node_id: str) -> list[bytes]:
        """Run a graph and return the images of a node from the socket."""
        current_node, result = "", []
        for message in self.run(graph)[1]:
            if isinstance(message, bytes):
                if current_node == node_id:
                    result.append(message[8:])
            elif message["type"] == "executing":
                current_node = message["data"]["node"]
        return result


@dataclass(frozen=True)
class ServerWithScript:
    """An app on a port, and a script that is its client."""

    app: AppFixture
    script: ComfyScript


@contextlib.asynccontextmanager
async def running_server(folder: Path, **changes: Any) -> AsyncIterator[ServerWithScript]:
    """A server on a real loopback port."""
    listener = open_listener()
    port = listener.getsockname()[1]
    with listener:
        async with running_app(folder, app_catalog.models_document(), port=port, **changes) as app:
            config = uvicorn.Config(
                app.asgi, lifespan="off", log_config=None, ws="websockets-sansio", timeout_graceful_shutdown=2
            )
            server = EmbeddedServer(config)
            serving = asyncio.create_task(server.serve([listener]))
            try:
                yield ServerWithScript(app, ComfyScript(f"127.0.0.1:{port}"))
            finally:
                server.should_exit = True
                await serving


@pytest.fixture
async def comfy(tmp_path: Path) -> AsyncIterator[ServerWithScript]:
    async with running_server(tmp_path) as result:
        yield result


async def test_history_script_gets_its_image(comfy: ServerWithScript) -> None:
    text, result = await asyncio.to_thread(comfy.script.images, PAINT)
    image = Image.open(io.BytesIO(result["9"][0]))
    assert (image.size, image.format) == ((96, 64), "PNG")
    # The graph is in the metadata before the pixels.
    assert json.loads(image.info["prompt"]) == PAINT
    kinds = [message["type"] for message in text if not isinstance(message, bytes)]
    messages = [kind for kind in dict.fromkeys(kinds) if kind not in ("progress", "status")]
    assert messages == ["execution_start", "execution_cached", "executing", "executed", "execution_success"]
    steps = [m["data"] for m in text if isinstance(m, dict) and m["type"] == "progress"]
    assert steps
    assert all(type(each[name]) is int for each in steps for name in ("value", "max"))
    nodes = [m["data"]["node"] for m in text if isinstance(m, dict) and m["type"] == "executing"]
    assert set(nodes) == {*PAINT, None}
    assert nodes[-2:] == ["9", None]
    [entry] = (await comfy.app.client.get("/history")).json().values()
    meta = dict.fromkeys(("node_id", "display_node", "real_node_id"), "9") | {"parent_node": None}
    assert (entry["prompt"][4], entry["meta"]) == (["9"], {"9": meta})
    text, second_images = await asyncio.to_thread(comfy.script.images, PAINT)
    assert second_images == result
    [cached] = [m["data"]["nodes"] for m in text if isinstance(m, dict) and m["type"] == "execution_cached"]
    assert "9" in cached


async def test_viewed_image_is_signed_and_equals_the_run_output(comfy: ServerWithScript) -> None:
    mixed = {**PAINT, "0": node("PreviewImage", images=["8", 0]), "1": node("SaveImage", **SECOND)}
    application = comfy.app.server
    _, result = await asyncio.to_thread(comfy.script.images, mixed)
    page, _ = await application.predictions.page(
        Tenant(comfy.app.operator.id), PredictionFilter(model="comfyui-prompt"), 1, None
    )
    assert page[0].output is not None
    # The files have the order of the graph.
    assert [file.info["node"] for file in page[0].output.files] == ["9", "1"]
    for index, name in enumerate(("9", "1")):
        signed = application.signer.read(embed.extract(result[name][0]) or "")
        assert (signed.valid, signed.manifest.index, signed.manifest.quality) == (True, index, "preview")
    assert [await application.blobs.get(file.blob) for file in page[0].output.files] == [
        result["9"][0],
        result["1"][0],
    ]
    # Images that are only previewed contain a manifest, too.
    assert embed.extract(result["0"][0]) is not None
    _, images = await asyncio.to_thread(comfy.script.images, mixed)
    assert images == result


async def test_image_size_may_come_from_an_image_of_the_run(comfy: ServerWithScript) -> None:
    graph = {
        **PAINT,
        "1": node("LoadImage", image="example.png"),
        "2": node("GetImageSize", image=["1", 0]),
        "5": node("EmptyLatentImage", width=["2", 0], height=["2", 1], batch_size=["2", 2]),
    }
    _, result = await asyncio.to_thread(comfy.script.images, graph)
    assert Image.open(io.BytesIO(result["9"][0])).size == (384, 256)
    response = await comfy.app.client.post(
        "/api/graph/validate", json={"workflow": graph}, headers=comfy.app.bearer
    )
    # The price is that of the maximum number of images, because no image is free.
    assert response.json()["estimate"]["price_usd"] == "2.56"


async def test_websocket_script_gets_its_image(comfy: ServerWithScript) -> None:
    graph = {**PAINT, "9": node("SaveImageWebsocket", images=["8", 0])}
    [data] = await asyncio.to_thread(comfy.script.streamed, graph, "9")
    assert Image.open(io.BytesIO(data)).size == (96, 64)


async def test_invalid_prompts_get_comfyui_errors(comfy: ServerWithScript) -> None:
    client = comfy.app.client
    bad = json.loads(json.dumps(PAINT))
    bad["3"]["inputs"] |= {"steps": 0}
    del bad["8"]["inputs"]["vae"]
    response = await client.post("/prompt", json={"prompt": bad})
    body = response.json()
    assert (response.status_code, body["error"]["type"]) == (400, "prompt_outputs_failed_validation")
    assert set(body["error"]) == {"type", "message", "details", "extra_info"}
    assert body["node_errors"]["3"]["errors"][0]["type"] == "value_smaller_than_min"
    assert body["node_errors"]["3"]["class_type"] == "KSampler"
    assert body["node_errors"]["8"]["dependent_outputs"] == ["9"]
    body = (await client.post("/prompt", json={})).json()
    assert body["error"]["type"] == "no_prompt"
    body = (await client.post("/prompt", json={"prompt": {"1": node("Nope"), "2": node("Nada")}})).json()
    missing = [each["class_type"] for each in body["error"]["extra_info"]["missing"]]
    assert (body["error"]["type"], missing) == ("invalid_prompt", ["Nope", "Nada"])
    response = await client.post("/prompt", json={"prompt": PAINT, "strict_models": True})
    assert response.json()["node_errors"]["4"]["errors"][0]["type"] == "value_not_in_list"
    graph = {
        "1": node("LoadImage", image="nowhere.png"),
        "2": node("SaveImage", images=["1", 0], filename_prefix="x"),
    }
    response = await client.post("/prompt", json={"prompt": {**graph}})
    assert response.json()["node_errors"]["1"]["errors"][0]["type"] == "custom_validation_failed"


async def test_queue_lists_the_running_prompt_which_can_be_interrupted(tmp_path: Path) -> None:
    points = {"failpoints": "engine.run.comfyui-prompt=hang"}
    async with running_app(tmp_path, app_catalog.models_document(), **points) as app:
        client, hub = app.client, app.server.workflows.hub
        with hub.open(Tenant(app.operator.id, keyless=True), "me") as socket:
            response = await client.post("/api/prompt", json={"prompt": PAINT, "client_id": "me"})
            prompt_id = response.json()["prompt_id"]
            assert set(response.json()) >= {"prompt_id", "number", "node_errors"}
            queue = (await client.get("/queue")).json()
            [item] = queue["queue_running"] + queue["queue_pending"]
            assert (item[1], item[2]) == (prompt_id, PAINT)
            assert (await client.get("/prompt")).json() == {"exec_info": {"queue_remaining": 1}}
            assert (await client.get(f"/history/{prompt_id}")).json() == {}
            prediction = (await app.predictions.page(Tenant(app.operator.id), PredictionFilter(), 1, None))[
                0
            ][0]
            async for event in app.predictions.events(prediction):
                if isinstance(event, StateChanged) and event.prediction.state is PredictionState.RUNNING:
                    break
            assert (await client.post("/interrupt", json={"prompt_id": "another"})).status_code == 200
            assert (await client.post("/interrupt")).status_code == 200
            kinds: list[str] = []
            while "executing" not in kinds:
                text = await socket.next()
                assert isinstance(text, str)
                message = json.loads(text)
                kinds.append(message["type"])
        assert "execution_interrupted" in kinds
        entry = (await client.get("/history")).json()[prompt_id]
        assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
        assert (await client.get("/queue")).json() == {"queue_running": [], "queue_pending": []}
        await client.post("/history", json={"clear": True})
        assert (await client.get("/history")).json() == {}


async def test_interrupt_over_a_socket_stops_the_latest_prompt(tmp_path: Path) -> None:
    points = {"failpoints": "engine.run.comfyui-prompt=hang"}

    def interrupted(script: ComfyScript) -> list[Any]:
        socket = script.listening("me")
        try:
            prompt_id = script.post("/prompt", {"prompt": PAINT, "client_id": "me"})["prompt_id"]
            script.post("/interrupt", {})
            return [each["type"] for each in script.until_done(socket, prompt_id)]
        finally:
            socket.close()

    async with running_server(tmp_path, **points) as comfy:
        for _ in range(5):
            kinds = await asyncio.to_thread(interrupted, comfy.script)
            assert kinds[-2:] == ["execution_interrupted", "executing"]
        assert (await comfy.app.client.get("/prompt")).json() == {"exec_info": {"queue_remaining": 0}}


async def test_queue_is_ordered_by_number_and_front(tmp_path: Path) -> None:
    points = {"failpoints": "engine.run.comfyui-prompt=hang"}
    async with running_app(tmp_path, app_catalog.models_document(), **points) as app:
        requests = ({"prompt_id": "a"}, {"prompt_id": "b", "front": True}, {"prompt_id": "c", "number": 0.5})
        for each in requests:
            assert (await app.client.post("/prompt", json={"prompt": PAINT, **each})).status_code == 200
        queue = (await app.client.get("/queue")).json()
        entries = queue["queue_running"] + queue["queue_pending"]
        assert sorted((item[0], item[1]) for item in entries) == [(-2, "b"), (0.5, "c"), (1, "a")]
        for part in queue.values():
            assert [item[0] for item in part] == sorted(item[0] for item in part)
        for each in requests:
            await app.client.post("/interrupt", json={"prompt_id": each["prompt_id"]})


async def test_deleted_history_stays_deleted_after_a_restart(either: Path) -> None:
    graph = {"1": node("PrimitiveString", value="hello"), "2": node("PreviewAny", source=["1", 0])}

    async def history(visitor: httpx.AsyncClient) -> list[str]:
        return list((await visitor.get("/history")).json())

    async with running_app(either, app_catalog.models_document()) as app:
        for prompt_id in ("a", "b", "c"):
            response = await app.client.post("/prompt", json={"prompt": graph, "prompt_id": prompt_id})
            assert response.status_code == 200
            async with asyncio.timeout(60):
                while prompt_id not in await history(app.client):  # noqa: ASYNC110  # it polls
                    await asyncio.sleep(0.01)
        assert await history(app.client) == ["a", "b", "c"]
        await app.client.post("/history", json={"delete": ["b"]})
        assert (await app.client.get("/history/b")).json() == {}
        settings = app.settings
    application = bootstrap.build(settings, app_catalog.models_document())
    async with bootstrap.running(application), client(asgi.create_app(application)) as visitor:
        assert await history(visitor) == ["a", "c"]
        assert (await visitor.get("/history/a")).json()["a"]["status"]["completed"] is True
        await visitor.post("/history", json={"clear": True})
        assert await history(visitor) == []


async def test_files_are_uploaded_and_viewed_by_name(comfy: ServerWithScript) -> None:
    client, out = comfy.app.client, io.BytesIO()
    Image.new("RGB", (40, 30), "teal").save(out, "PNG")
    file = {"image": ("tea l.png", out.getvalue(), "image/png")}
    other = io.BytesIO()
    Image.new("RGB", (40, 30), "coral").save(other, "PNG")
    sent = [out.getvalue(), out.getvalue(), other.getvalue(), other.getvalue()]
    responses = [await client.post("/upload/image", files={"image": ("tea l.png", each)}) for each in sent]
    names = [answer.json()["name"] for answer in responses]
    assert names == ["tea l.png", "tea l.png", "tea l (1).png", "tea l (1).png"]
    over = await client.post("/upload/image", files=file, data={"overwrite": "true", "subfolder": "a/b"})
    assert over.json() == {"name": "tea l.png", "subfolder": "a/b", "type": "input"}
    query = {"filename": "tea l.png", "subfolder": "a/b", "type": "input"}
    response = await client.get("/view", params=query)
    assert (response.content, response.headers["content-type"]) == (out.getvalue(), "image/png")
    part = await client.get("/view", params=query, headers={"Range": "bytes=8-15"})
    assert (part.status_code, part.content) == (206, out.getvalue()[8:16])
    condition = {"If-None-Match": response.headers["etag"]}
    assert (await client.get(response.request.url, headers=condition)).status_code == 304
    for name in ("../x.png", "/etc/passwd", "a\\b.png", ""):
        assert (await client.get("/view", params={"filename": name})).status_code == 400
    for absent in ({"filename": "no.png"}, {}):
        assert (await client.get("/view", params=absent)).status_code == 404
    evil = {"image": ("x.html", b"<script>1</script>", "text/html")}
    assert (await client.post("/upload/image", files=evil)).status_code == 415
    graph = {
        "1": node("LoadImage", image="a/b/tea l.png"),
        "2": node("ImageInvert", image=["1", 0]),
        "3": node("SaveImage", images=["2", 0], filename_prefix="x"),
    }
    _, result = await asyncio.to_thread(comfy.script.images, graph)
    assert Image.open(io.BytesIO(result["3"][0])).getpixel((5, 5)) == (255, 126, 126)


async def test_uploaded_mask_becomes_the_alpha_channel(comfy: ServerWithScript) -> None:
    client = comfy.app.client

    def png(picture: Image.Image) -> bytes:
        return image_files.encode(picture)

    plain = {"image": ("sea.png", png(Image.new("RGB", (20, 10), "navy")), "image/png")}
    assert (await client.post("/upload/image", files=plain)).status_code == 200
    drawn = Image.new("RGBA", (20, 10), (255, 255, 255, 255))
    drawn.paste((0, 0, 0, 0), (0, 0, 10, 10))
    ref = {"original_ref": json.dumps({"filename": "sea.png", "type": "input"})}
    mask = {"image": ("clipspace-1.png", png(drawn), "image/png")}
    response = await client.post("/upload/mask", files=mask, data={**ref, "subfolder": "clipspace"})
    assert response.json() == {"name": "clipspace-1.png", "subfolder": "clipspace", "type": "input"}
    query = {"filename": "clipspace-1.png", "subfolder": "clipspace", "type": "input"}
    merged = Image.open(io.BytesIO((await client.get("/view", params=query)).content))
    assert (merged.getpixel((3, 3)), merged.getpixel((15, 3))) == ((0, 0, 128, 0), (0, 0, 128, 255))
    small = {"image": ("m.png", png(Image.new("RGBA", (5, 5))), "image/png")}
    refused_response = await client.post("/upload/mask", files=small, data=ref)
    assert (refused_response.status_code, "5×5" in refused_response.json()["error"]["message"]) == (400, True)
    for lost in ("{}", "[", json.dumps({"filename": "../x.png"}), json.dumps({"filename": "nowhere.png"})):
        refused_response = await client.post("/upload/mask", files=mask, data={"original_ref": lost})
        assert refused_response.status_code == 400


@pytest.mark.parametrize(
    ("options", "kind", "mode", "pixel"),
    [
        ({"preview": "webp;90"}, "WEBP", "RGBA", None),
        ({"preview": "jpeg;40"}, "JPEG", "RGB", None),
        ({"preview": "jpeg", "channel": "a"}, "WEBP", "RGBA", None),
        ({"preview": ""}, "WEBP", "RGBA", None),
        ({"channel": "rgb"}, "PNG", "RGB", (250, 128, 114)),
        ({"channel": "a"}, "PNG", "RGBA", (0, 0, 0, 77)),
        ({"channel": "rgba"}, "PNG", "RGBA", (250, 128, 114, 77)),
    ],
)
async def test_view_returns_previews_and_channels(
    comfy: ServerWithScript, options: dict[str, str], kind: str, mode: str, pixel: tuple[int, ...] | None
) -> None:
    client, out = comfy.app.client, io.BytesIO()
    Image.new("RGBA", (40, 30), (250, 128, 114, 77)).save(out, "PNG")
    await client.post("/upload/image", files={"image": ("veil.png", out.getvalue())}, data={"overwrite": "1"})
    query = {"filename": "veil.png", "type": "input", **options}
    response = await client.get("/view", params=query)
    assert response.headers["content-type"] == f"image/{kind.lower()}"
    image = Image.open(io.BytesIO(response.content))
    assert (image.format, image.mode, image.size) == (kind, mode, (40, 30))
    assert pixel in (None, image.getpixel((3, 3)))


async def test_routes_about_nodes_models_and_system_respond(comfy: ServerWithScript) -> None:
    client = comfy.app.client
    for base in ("", "/api"):
        known = (await client.get(f"{base}/object_info/KSampler")).json()
        assert known["KSampler"]["input"]["required"]["steps"][0] == "INT"
        assert (await client.get(f"{base}/object_info/Nope")).json() == {}
        stats = (await client.get(f"{base}/system_stats")).json()
        assert stats["devices"][0]["type"] == "cpu"
        assert "checkpoints" in (await client.get(f"{base}/models")).json()
        assert "sd_xl_base_1.0.safetensors" in (await client.get(f"{base}/models/checkpoints")).json()
        missing = await client.get(f"{base}/models/nothing")
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found")
        assert (await client.get(f"{base}/embeddings")).json() == []
        assert "max_upload_size" in (await client.get(f"{base}/features")).json()
    assert len((await client.get("/object_info")).json()) > 300
    assert (await client.post("/free", json={"free_memory": True})).status_code == 200


async def test_routes_need_a_key_and_separate_accounts(comfy: ServerWithScript) -> None:
    app = comfy.app
    other_client = app.visitor("203.0.113.9")
    assert (await other_client.get("/queue")).status_code == 401
    assert (await other_client.get("/queue", params={"token": app.key})).status_code == 200
    response = await other_client.post("/prompt", json={"prompt": PAINT}, headers=app.bearer)
    prompt_id = response.json()["prompt_id"]
    headers = app.bearer
    async with asyncio.timeout(60):
        while not (entry := (await other_client.get("/history", headers=headers)).json()):  # noqa: ASYNC110  # it polls
            await asyncio.sleep(0.01)
    [image] = entry[prompt_id]["outputs"]["9"]["images"]
    assert image["subfolder"] == "made"
    assert (await other_client.get("/view", params=image, headers=app.bearer)).status_code == 200
    other = {"Authorization": f"Bearer {app.other}"}
    assert (await other_client.get("/view", params=image, headers=other)).status_code == 404
    assert (await other_client.get(f"/history/{prompt_id}", headers=other)).json() == {}
    assert await app.balance() == ("4.96", "0.00")
    assert await app.faults() == ()
    await other_client.aclose()


async def test_a_prompt_with_an_idempotency_key_is_queued_once(comfy: ServerWithScript) -> None:
    app = comfy.app
    headers = {**app.bearer, "Idempotency-Key": "k"}
    first, second = [await app.client.post("/prompt", json={"prompt": PAINT}, headers=headers) for _ in "ab"]
    assert first.json() == second.json()
    other = await app.client.post("/prompt", json={"prompt": PAINT, "front": True}, headers=headers)
    assert (other.status_code, other.json()["error"]["type"]) == (409, "idempotency_mismatch")
    scope = idempotency.scope_id(app.account.id, "POST", "/prompt", "k")
    # This is the state after a kill.
    await app.database.write(idempotency.forget(scope))
    response = await app.client.post("/prompt", json={"prompt": PAINT}, headers=headers)
    assert response.json() == first.json()


async def test_operator_on_localhost_runs_prompts_for_free(comfy: ServerWithScript) -> None:
    from_here = await comfy.app.client.post("/prompt", json={"prompt": PAINT})
    assert from_here.status_code == 200
    assert threading.active_count() < 100
    async with asyncio.timeout(60):
        while not (entry := (await comfy.app.client.get("/history")).json()):  # noqa: ASYNC110  # it polls
            await asyncio.sleep(0.01)
    [response] = entry.values()
    assert response["status"]["status_str"] == "success"
    assert await comfy.app.faults() == ()
