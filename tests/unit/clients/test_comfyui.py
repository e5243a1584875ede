"""The ComfyUI client against a loopback server: successful runs and every failure."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.responses import Response

from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.clients.comfyui.events import (
    Event,
    NodeFinished,
    NodeProgress,
    NodesCached,
    NodeStarted,
    PreviewImage,
)
from sixfold.clients.comfyui.server import ComfyFile, ComfyLimits, ComfyServer
from tests.fakes.comfyui import Comfy, comfyui
from tests.fakes.comfyui_faults import cut_off, endless

LIMITS = ComfyLimits(
    connect_seconds=30, answer_seconds=1, quiet_seconds=0.3, gone_seconds=0.3, withdraw_seconds=2
)


@dataclass
class ComfyFixture:
    """The fake, and a server object for it."""

    comfy: Comfy
    client: httpx.AsyncClient
    events: list[Event] = field(default_factory=list[Event])

    @property
    def server(self) -> ComfyServer:
        return ComfyServer(self.client, self.comfy.url, LIMITS)

    async def run(self, graph: dict[str, Any]) -> dict[str, Any]:
        """Run a graph whose output is node 7."""
        return dict(await self.server.run(graph, {"7"}, self.events.append))

    def start(self, graph: dict[str, Any]) -> asyncio.Task[dict[str, Any]]:
        return asyncio.create_task(self.run(graph))


@pytest.fixture
async def fixture() -> AsyncIterator[ComfyFixture]:
    async with comfyui() as comfy, httpx.AsyncClient(trust_env=False) as client:
        yield ComfyFixture(comfy, client)


def graph(seed: int = 1, prompt: str = "a lake", **changes: Any) -> dict[str, Any]:
    """Return a text-to-image graph of seven nodes; `changes` are inputs of the sampler."""
    sampler = {
        "model": ["1", 0],
        "positive": ["2", 0],
        "negative": ["3", 0],
        "latent_image": ["4", 0],
        "seed": seed,
        "steps": 3,
        "cfg": 5.0,
        "sampler_name": "euler",
        "scheduler": "simple",
        "denoise": 1.0,
    }
    nodes = (
        ("CheckpointLoaderSimple", {"ckpt_name": "sd_xl_base_1.0.safetensors"}),
        ("CLIPTextEncode", {"text": prompt, "clip": ["1", 1]}),
        ("CLIPTextEncode", {"text": "", "clip": ["1", 1]}),
        ("EmptyLatentImage", {"width": 64, "height": 64, "batch_size": 1}),
        ("KSampler", {**sampler, **changes}),
        ("VAEDecode", {"samples": ["5", 0], "vae": ["1", 2]}),
        ("PreviewImage", {"images": ["6", 0]}),
    )
    return {str(n): {"class_type": kind, "inputs": inputs} for n, (kind, inputs) in enumerate(nodes, 1)}


async def reach(event: asyncio.Event) -> None:
    """Wait for an event of the fake."""
    async with asyncio.timeout(60):
        await event.wait()


async def picture(fixture: ComfyFixture, outputs: dict[str, Any]) -> Image.Image:
    """Return the first image of node 7."""
    target = io.BytesIO()
    await fixture.server.view(ComfyFile(**outputs["7"]["images"][0]), target, 2**20)
    return Image.open(target)


# -- successful runs ------------------------------------------------------------------------------


async def test_graph_is_run_with_progress_and_its_outputs_fetched(fixture: ComfyFixture) -> None:
    outputs = await fixture.run(graph())
    result = await picture(fixture, outputs)
    assert (result.format, result.size) == ("PNG", (64, 64))
    assert [event for event in fixture.events if isinstance(event, NodeProgress)][-1] == NodeProgress(
        "5", 3, 3
    )
    assert NodeStarted("5") in fixture.events
    assert any(isinstance(event, NodeFinished) and event.node == "7" for event in fixture.events)


async def test_cached_nodes_are_reused_and_reported(fixture: ComfyFixture) -> None:
    first = await fixture.run(graph())
    fixture.events.clear()
    assert await fixture.run(graph()) == first
    assert any(isinstance(event, NodesCached) and "7" in event.nodes for event in fixture.events)


async def test_cached_run_of_an_older_server_is_read_from_history(fixture: ComfyFixture) -> None:
    fixture.comfy.old = True
    first = await fixture.run(graph())
    # The server does not announce this run, so it is read from the history.
    second_result = await fixture.run(graph())
    assert second_result == first


async def test_concurrent_runs_get_their_own_results(fixture: ComfyFixture) -> None:
    first, second = await asyncio.gather(fixture.run(graph(1)), fixture.run(graph(2)))
    pixels = [(await picture(fixture, outputs)).tobytes() for outputs in (first, second)]
    assert pixels[0] != pixels[1]
    alone = await picture(fixture, await fixture.run(graph(2)))
    assert alone.tobytes() == pixels[1]


async def test_images_from_the_websocket_become_previews(fixture: ComfyFixture) -> None:
    nodes = graph()
    nodes["7"]["class_type"] = "SaveImageWebsocket"
    await fixture.run(nodes)
    sent = [event for event in fixture.events if isinstance(event, PreviewImage)]
    assert Image.open(io.BytesIO(sent[0].data)).size == (64, 64)


async def test_history_is_polled_without_websockets(fixture: ComfyFixture) -> None:
    fixture.comfy.sockets = False
    assert (await fixture.run(graph()))["7"]["images"]


async def test_websocket_is_not_redirected_to_another_address(fixture: ComfyFixture) -> None:
    called: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:{port}/\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())
        writer.close()

    async with await asyncio.start_server(record, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        async with await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(comfyui_errors.ComfyError):
                await ComfyServer(fixture.client, url, LIMITS).run(graph(), {"7"})
    assert called == []


async def test_dropped_websocket_reconnects_without_loss(fixture: ComfyFixture) -> None:
    hold = fixture.comfy.hold("KSampler")
    run = fixture.start(graph())
    await reach(hold.reached)
    fixture.comfy.drop_sockets()
    await reach(fixture.comfy.back)
    hold.go.set()
    assert (await run)["7"]["images"]
    assert NodeProgress("5", 3, 3) in fixture.events
    assert fixture.comfy.called("/prompt") == 1


async def test_uploaded_file_has_the_annotated_name_for_nodes(fixture: ComfyFixture) -> None:
    file = await fixture.server.upload("a.png", b"data", "image/png")
    assert file.annotated == "a.png [temp]"
    assert fixture.comfy.files["temp", "a.png"] == b"data"


async def test_stats_and_models_of_a_server_are_read(fixture: ComfyFixture) -> None:
    server = fixture.server
    stats = await server.stats()
    assert (stats.version, stats.device, stats.memory_bytes) == ("0.8.0", "cuda:0 Fake GPU", 24 * 2**30)
    assert await server.models("checkpoints") == ("sd_xl_base_1.0.safetensors",)
    assert await server.models("nowhere") == ()
    assert set(await server.object_info("KSampler")) == {"KSampler"}
    assert await server.object_info("NoSuchNode") == {}
    assert "VAEDecode" in await server.object_info()


async def test_every_call_has_the_hop_header(fixture: ComfyFixture) -> None:
    await fixture.run(graph())
    assert {path for _, path, _ in fixture.comfy.calls} >= {"/ws", "/prompt"}
    assert all(headers.get("x-sixfold-hop") == "1" for _, _, headers in fixture.comfy.calls)


# -- cancellation ---------------------------------------------------------------------------------


async def wait_until_idle(comfy: Comfy) -> None:
    """Wait until nothing is running or queued."""
    async with asyncio.timeout(60):
        while comfy.running or comfy.pending:
            comfy.change_event.clear()
            await comfy.change_event.wait()


@pytest.mark.parametrize("old", [False, True])
async def test_canceled_run_is_interrupted_on_the_server(fixture: ComfyFixture, old: bool) -> None:
    fixture.comfy.old = old
    hold = fixture.comfy.hold("KSampler")
    run = fixture.start(graph())
    await reach(hold.reached)
    run.cancel()
    await asyncio.wait([run])
    hold.go.set()
    await wait_until_idle(fixture.comfy)
    assert run.cancelled()
    assert fixture.comfy.called("/interrupt") == 1
    assert "VAEDecode" not in fixture.comfy.executed_classes


async def test_canceled_queued_run_is_removed_and_others_continue(fixture: ComfyFixture) -> None:
    hold = fixture.comfy.hold("KSampler")
    first = fixture.start(graph(1))
    await reach(hold.reached)
    fixture.comfy.change_event.clear()
    second = fixture.start(graph(2))
    await reach(fixture.comfy.change_event)
    second.cancel()
    await asyncio.wait([second])
    assert fixture.comfy.pending == []
    assert fixture.comfy.called("/interrupt") == 0
    hold.go.set()
    assert (await first)["7"]["images"]


async def test_exception_of_the_watcher_interrupts_the_run(fixture: ComfyFixture) -> None:
    class Enough(BaseException):
        pass

    def watch(event: Event) -> None:
        if isinstance(event, NodeProgress):
            raise Enough

    with pytest.raises(Enough):
        await fixture.server.run(graph(steps=10_000), {"7"}, watch)
    await wait_until_idle(fixture.comfy)
    assert "VAEDecode" not in fixture.comfy.executed_classes


async def test_dropped_sockets_and_callers_do_not_affect_others(fixture: ComfyFixture) -> None:
    many = [graph(seed, steps=40) for seed in range(4)]
    alone = [(await picture(fixture, await fixture.run(nodes))).tobytes() for nodes in many]
    fixture.comfy._cache.clear()
    chance = np.random.default_rng(7)
    runs = [fixture.start(many[n % 4]) for n in range(24)]
    while not all(run.done() for run in runs):
        fixture.comfy.change_event.clear()
        change_task = asyncio.create_task(fixture.comfy.change_event.wait())
        await asyncio.wait(
            {change_task, *(run for run in runs if not run.done())}, return_when="FIRST_COMPLETED"
        )
        change_task.cancel()
        if chance.random() < 0.4:
            fixture.comfy.drop_sockets()
        if chance.random() < 0.3:
            runs[chance.integers(len(runs))].cancel()
    await wait_until_idle(fixture.comfy)
    for n, run in enumerate(runs):
        assert run.cancelled() or (await picture(fixture, run.result())).tobytes() == alone[n % 4]
    assert 0 < sum(run.cancelled() for run in runs) < len(runs)


# -- errors, in one sentence -------------------------------------------------------------------


async def test_missing_model_file_is_named_in_the_error(fixture: ComfyFixture) -> None:
    nodes = graph()
    nodes["1"]["inputs"]["ckpt_name"] = "other.safetensors"
    with pytest.raises(comfyui_errors.ComfyRefused) as excinfo:
        await fixture.run(nodes)
    assert str(excinfo.value) == (
        "ComfyUI refused the graph: CheckpointLoaderSimple has no ckpt_name 'other.safetensors' there."
    )
    assert excinfo.value.unknown_value


async def test_an_input_out_of_bounds_is_named_with_its_node(fixture: ComfyFixture) -> None:
    nodes = graph(steps=0, cfg=101)
    with pytest.raises(comfyui_errors.ComfyRefused) as excinfo:
        await fixture.run(nodes)
    text = "ComfyUI refused the graph: KSampler: Value 0 smaller than min of 1 (steps); and 1 more."
    assert str(excinfo.value) == text
    assert not excinfo.value.unknown_value


async def test_missing_node_class_is_named_in_the_error(fixture: ComfyFixture) -> None:
    nodes = {**graph(), "8": {"class_type": "Odd", "inputs": {}}}
    with pytest.raises(comfyui_errors.ComfyRefused, match="node Odd does not exist"):
        await fixture.run(nodes)


async def test_error_of_a_node_omits_the_folders_of_the_server(fixture: ComfyFixture) -> None:
    fixture.comfy.raises["KSampler"] = ("ValueError", "bad file /srv/comfy/models/x.safetensors\nmore")
    with pytest.raises(comfyui_errors.ComfyNodeFailed) as excinfo:
        await fixture.run(graph())
    assert str(excinfo.value) == "ComfyUI failed in KSampler: bad file x.safetensors."
    assert fixture.comfy.called("/interrupt") == 0


async def test_failure_is_read_from_history_after_socket_loss(fixture: ComfyFixture) -> None:
    fixture.comfy.sockets = False
    fixture.comfy.raises["VAEDecode"] = ("RuntimeError", "shapes differ")
    with pytest.raises(
        comfyui_errors.ComfyNodeFailed, match=r"^ComfyUI failed in VAEDecode: shapes differ\.$"
    ):
        await fixture.run(graph())


async def test_out_of_memory_error_names_a_remedy(fixture: ComfyFixture) -> None:
    fixture.comfy.raises["KSampler"] = ("OutOfMemoryError", "Allocation on device 0 would exceed")
    with pytest.raises(comfyui_errors.ComfyNodeFailed, match=r"out of memory in KSampler: a smaller image"):
        await fixture.run(graph())


@pytest.mark.parametrize("sockets", [True, False])
async def test_interrupt_by_another_client_raises_an_error(fixture: ComfyFixture, sockets: bool) -> None:
    fixture.comfy.sockets = sockets
    hold = fixture.comfy.hold("KSampler")
    run = fixture.start(graph())
    await reach(hold.reached)
    fixture.comfy.interrupt()
    hold.go.set()
    with pytest.raises(comfyui_errors.ComfyInterrupted, match="interrupted on the ComfyUI server"):
        await run


async def test_restart_during_a_run_is_detected(fixture: ComfyFixture) -> None:
    hold = fixture.comfy.hold("KSampler")
    run = fixture.start(graph())
    await reach(hold.reached)
    await fixture.comfy.forget()
    with pytest.raises(comfyui_errors.ComfyError, match="no longer has this run"):
        await run


async def test_prompt_removed_from_the_queue_is_detected(fixture: ComfyFixture) -> None:
    hold = fixture.comfy.hold("KSampler")
    first = fixture.start(graph(1))
    await reach(hold.reached)
    fixture.comfy.change_event.clear()
    second = fixture.start(graph(2))
    await reach(fixture.comfy.change_event)
    fixture.comfy.pending.clear()
    with pytest.raises(comfyui_errors.ComfyError, match="its queue was cleared"):
        await second
    hold.go.set()
    assert (await first)["7"]["images"]


async def test_server_that_stops_during_a_run_fails_it(fixture: ComfyFixture) -> None:
    hold = fixture.comfy.hold("KSampler")
    run = fixture.start(graph())
    await reach(hold.reached)
    await fixture.comfy.stop()
    with pytest.raises(comfyui_errors.ComfyUnreachable, match="stopped responding during the run"):
        await run


async def test_missing_server_is_named_in_the_error(fixture: ComfyFixture) -> None:
    await fixture.comfy.stop()
    with pytest.raises(comfyui_errors.ComfyUnreachable, match="cannot be reached"):
        await fixture.run(graph())


@pytest.mark.parametrize("path", ["/system_stats", "/prompt"])
async def test_unresponsive_server_times_out(fixture: ComfyFixture, path: str) -> None:
    fixture.comfy.silent.add(path)
    with pytest.raises(comfyui_errors.ComfyUnreachable, match=r"did not respond within 1 second\.$"):
        await (fixture.server.stats() if path == "/system_stats" else fixture.run(graph()))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"<html>", "not JSON"),
        (b'["a"]', "is not ComfyUI"),
        (b'{"system": {}}', "is not ComfyUI"),
        (Response("no such page", 404), "is not ComfyUI"),
        (Response("asked by itself", 403), r"refused GET /system_stats \(403\): set the address of ComfyUI"),
    ],
)
async def test_response_of_another_program_is_refused(
    fixture: ComfyFixture, answer: Any, message: str
) -> None:
    fixture.comfy.responses["/system_stats"] = answer
    with pytest.raises(comfyui_errors.ComfyError, match=message):
        await fixture.server.stats()


async def test_rejection_without_json_states_the_status(fixture: ComfyFixture) -> None:
    fixture.comfy.responses["/upload/image"] = fixture.comfy.responses["/models/loras"] = Response(b"", 400)
    with pytest.raises(comfyui_errors.ComfyError, match=r"refused /upload/image \(400\)"):
        await fixture.server.upload("a.png", b"x", "image/png")
    assert await fixture.server.models("loras") == ()


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/system_stats", b'{"system": {"comfyui_version": "1"}, "devices": [7]}'),
        ("/queue", b'{"queue_running": [7]}'),
        ("/history", b'{"status": 7}'),
    ],
)
async def test_malformed_response_fails_with_one_sentence(
    fixture: ComfyFixture, path: str, answer: bytes
) -> None:
    fixture.comfy.sockets = False
    hold = fixture.comfy.hold("KSampler")
    fixture.comfy.responses[path] = answer
    if path == "/system_stats":
        with pytest.raises(comfyui_errors.ComfyError, match="unexpected response"):
            await fixture.server.stats()
        return
    run = fixture.start(graph())
    await reach(hold.reached)
    if path == "/history":
        prompt_id = fixture.comfy.running.prompt_id if fixture.comfy.running else ""
        fixture.comfy.responses[f"/history/{prompt_id}"] = f'{{"{prompt_id}": {answer.decode()}}}'.encode()
    with pytest.raises(comfyui_errors.ComfyError, match="unexpected response"):
        await run


async def test_endless_response_is_refused_at_the_limit(fixture: ComfyFixture) -> None:
    for path in ("/view", "/object_info", "/models/loras"):
        fixture.comfy.responses[path] = endless(b"x" * 65536)
    with pytest.raises(comfyui_errors.ComfyError, match="larger than 1 MiB"):
        await fixture.server.view(ComfyFile("a.png"), io.BytesIO(), 2**20)
    small = ComfyServer(fixture.client, fixture.comfy.url, ComfyLimits(schema_bytes=2**20))
    with pytest.raises(comfyui_errors.ComfyError, match="larger than 1 MiB"):
        await small.object_info()
    with pytest.raises(comfyui_errors.ComfyError, match="larger than 16 MiB"):
        await small.models("loras")


async def test_response_of_single_bytes_ends_at_the_time_limit(fixture: ComfyFixture) -> None:
    fixture.comfy.responses["/object_info"] = endless(b" ")
    slow = ComfyServer(fixture.client, fixture.comfy.url, ComfyLimits(exchange_seconds=0.3))
    with pytest.raises(comfyui_errors.ComfyTimeout, match="did not complete its response within"):
        await slow.object_info()


async def test_truncated_output_file_is_an_error(fixture: ComfyFixture) -> None:
    fixture.comfy.responses["/view"] = cut_off(1000, b"\x89PNG")
    with pytest.raises(comfyui_errors.ComfyUnreachable, match="connection to ComfyUI was lost"):
        await fixture.server.view(ComfyFile("a.png"), io.BytesIO(), 2**20)


async def test_missing_file_is_named_in_the_error(fixture: ComfyFixture) -> None:
    with pytest.raises(comfyui_errors.ComfyError, match=r"did not return the result file \(404\)"):
        await fixture.server.view(ComfyFile("gone.png"), io.BytesIO(), 2**20)


def test_invalid_url_is_refused() -> None:
    with pytest.raises(comfyui_errors.ComfyError, match="must begin with http"):
        ComfyServer(httpx.AsyncClient(), "127.0.0.1:8188")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("no /srv/models/a b.safetensors here", "no a b.safetensors here"),
        (r"at C:\comfy\models\x.pt", "at x.pt"),
        ("shape 4/64/64 is wrong", "shape 4/64/64 is wrong"),
        ("\n\nfirst\nsecond", "first"),
        ("", "no reason given"),
        ("x" * 500, "x" * 239 + "…"),
    ],
)
def test_server_message_is_reduced_to_plain_text(text: str, plain: str) -> None:
    assert comfyui_errors.first_line(text) == plain
