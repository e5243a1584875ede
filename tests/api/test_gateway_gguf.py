"""Chat by llama.cpp from a GGUF file: the real library in its own process, with random weights."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from anthropic import APIStatusError as AnthropicError
from openai import APIStatusError as OpenAIError
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.clients.chat.llama.processes import RunningProcess
from sixfold.clients.chat.llama.server import GgufServer
from tests.api.gateway import Gateway, listening, running_gateway
from tests.harness import image_files

pytest.importorskip("xllamacpp", reason="the extra `llama` is not installed")
tiny_gguf = pytest.importorskip("tests.fakes.tiny_gguf", reason="gguf is not installed")

SAMPLING_FIELDS: dict[str, Any] = {"max_tokens": 24, "temperature": 0.9, "seed": 5}


@asynccontextmanager
async def talking(folder: Path, settings: Any = None, **row: Any) -> AsyncIterator[Gateway]:
    """A gateway whose upstream `own` is a folder with one model, `tiny`."""
    tiny_gguf.write(folder / "models" / "tiny.gguf", context=row.pop("trained", 512))
    upstreams = {"own": {"kind": "gguf", "source": str(folder / "models"), "threads": 1, **row}}
    more: dict[str, Any] = {"upstreams": upstreams, "prices": {}, "timeout_seconds": 60}
    async with running_gateway(folder, settings, app_catalog.models_document(), **more) as there:
        yield there


def model_server(there: Gateway) -> GgufServer:
    result = next(
        each for each in there.app.server.gateway_runtime.gateway.router.servers() if each.name == "own"
    )
    assert isinstance(result, GgufServer)
    return result


async def process(there: Gateway, model: str = "tiny") -> RunningProcess:
    own = model_server(there)
    current_process, leave = await own.pool.enter(model, own.files[model])
    leave()
    return current_process


async def generated_tokens(there: Gateway) -> float:
    """Return the number of tokens generated since the model was loaded."""
    current_process = await process(there)
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {current_process.key}"}) as client:
        response = (await client.get(f"{current_process.url}/metrics")).text
    line = next(line for line in response.splitlines() if line.startswith("llamacpp:tokens_predicted_total"))
    return float(line.split()[1])


async def test_gguf_model_answers_in_all_protocols_and_template(tmp_path: Path) -> None:
    async with talking(tmp_path) as there:
        openai, anthropic = there.openai(), there.anthropic()
        messages: list[Any] = [{"role": "user", "content": "hello"}]
        text = await openai.chat.completions.create(model="own/tiny", messages=messages, **SAMPLING_FIELDS)
        assert text.choices[0].message.content
        assert text.choices[0].finish_reason == "length"
        assert text.usage is not None
        # <s> [user]hello[assistant]: the template of the file itself, a token for each byte of it
        assert (text.usage.prompt_tokens, text.usage.completion_tokens) == (24, 24)
        second_response = await openai.chat.completions.create(
            model="tiny", messages=messages, **SAMPLING_FIELDS
        )
        assert second_response.choices[0].message.content == text.choices[0].message.content
        other = await openai.chat.completions.create(
            model="tiny", messages=messages, **{**SAMPLING_FIELDS, "seed": 6}
        )
        assert other.choices[0].message.content != text.choices[0].message.content

        response = await openai.responses.create(model="own/tiny", input="hello", max_output_tokens=12)
        assert response.usage is not None
        assert response.usage.output_tokens == 12
        message = await anthropic.messages.create(model="own/tiny", messages=messages, max_tokens=12)
        assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 12)

        run = {"model": "text-llm", "input": {"prompt": "hello", "max_tokens": 12}}
        body = (await there.app.client.post("/api/containers/run", json=run, headers=there.headers)).json()
        assert (body["status"], body["engine"], body["quality"]) == ("succeeded", "relay", "full"), body
        assert body["output"]
        calls = await there.settled(6)
        assert {call["target"] for call in calls} == {"own/tiny"}
        assert {call["cost_usd"] for call in calls} == {"0.00"}


def small_image_uri() -> str:
    """Return a small image as a `data:` URI."""
    return image_files.data_uri(image_files.encode(Image.new("RGB", (40, 30), (200, 30, 30))))


def vision_chat(url: str) -> list[Any]:
    """Return a conversation with an image."""
    parts = [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "user", "content": parts}]


async def test_projector_file_enables_vision(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    tiny_gguf.write_eyes(tmp_path / "models" / "mmproj-tiny.gguf")
    async with talking(tmp_path) as there:
        create = there.openai().chat.completions.create
        text = await create(model="own/tiny", messages=vision_chat(small_image_uri()), **SAMPLING_FIELDS)
        assert text.usage is not None
        assert text.usage.prompt_tokens == 24 + 1 + 4, "words, a line's end, four patches"
        assert text.choices[0].message.content
        result = await there.openai().images.generate(model="ra2", prompt="a hill", size=cast("Any", "64x64"))
        assert result.data is not None
        assert result.data[0].url is not None
        second_completion = await create(
            model="own/tiny", messages=vision_chat(result.data[0].url), **SAMPLING_FIELDS
        )
        assert second_completion.usage is not None
        assert second_completion.usage.prompt_tokens == text.usage.prompt_tokens


async def test_image_urls_of_private_addresses_are_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    tiny_gguf.write_eyes(tmp_path / "models" / "mmproj-tiny.gguf")
    requests: list[str] = []

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readline()).decode())
        writer.close()

    closed = {"fetch_allow": ""}
    async with (
        await asyncio.start_server(visit, "127.0.0.1", 0) as secret,
        talking(tmp_path, closed) as there,
    ):
        url = f"http://127.0.0.1:{secret.sockets[0].getsockname()[1]}/latest/meta-data"
        client, claude = there.openai(), there.anthropic()
        video: list[Any] = [{"type": "video_url", "video_url": {"url": url}}]
        source: Any = {"type": "image", "source": {"type": "url", "url": url}}
        for ask in (
            client.chat.completions.create(model="own/tiny", messages=vision_chat(url)),
            client.chat.completions.create(model="own/tiny", messages=[{"role": "user", "content": video}]),
            client.responses.create(
                model="own/tiny",
                input=[{"role": "user", "content": cast("Any", [{"type": "input_image", "image_url": url}])}],
            ),
            claude.messages.create(
                model="own/tiny", max_tokens=4, messages=[{"role": "user", "content": [source]}]
            ),
        ):
            with pytest.raises((OpenAIError, AnthropicError)) as excinfo:
                await ask
            assert excinfo.value.status_code == 400
        assert requests == []
        assert (await there.chat(model="own/tiny", **SAMPLING_FIELDS)).status_code == 200


async def test_unsupported_input_is_reported_and_keeps_the_model_up(tmp_path: Path) -> None:
    async with talking(tmp_path) as there:
        client = there.app.client
        for part, sense in (
            (vision_chat(small_image_uri())[0]["content"][1], "does not accept images"),
            (
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                "does not accept audio",
            ),
        ):
            body = {"model": "own/tiny", "messages": [{"role": "user", "content": [part]}]}
            for stream in (False, True) * 3:
                response = await client.post(
                    "/v1/chat/completions", json={**body, "stream": stream}, headers=there.headers
                )
                assert response.status_code == 400, response.text
                assert sense in response.json()["error"]["message"]
        broken: dict[str, Any] = {"model": "own/tiny", "messages": [{"content": "x"}]}
        response = await client.post("/v1/chat/completions", json=broken, headers=there.headers)
        assert response.status_code == 400, response.text
        assert (await there.chat(model="own/tiny", **SAMPLING_FIELDS)).status_code == 200


async def test_text_is_completed_without_a_chat(tmp_path: Path) -> None:
    async with talking(tmp_path) as there:
        client = there.openai()
        full_completion = await client.completions.create(
            model="own/tiny", prompt="once upon", max_tokens=4, seed=1
        )
        assert full_completion.object == "text_completion"
        assert full_completion.usage is not None
        assert full_completion.usage.completion_tokens == 4
        call = (await there.calls())[0]
        assert (call["face"], call["usage"]["output_tokens"]) == ("completions", 4)


async def test_stream_has_the_text_and_usage_of_the_full_answer(tmp_path: Path) -> None:
    async with talking(tmp_path) as there:
        messages: list[Any] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
        client = there.openai()
        full_response = await client.chat.completions.create(
            model="own/tiny", messages=messages, **SAMPLING_FIELDS
        )
        stream = await client.chat.completions.create(
            model="own/tiny",
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            **SAMPLING_FIELDS,
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == full_response.choices[0].message.content
        assert len(chunks) > 5
        last = chunks[-1].usage
        assert last is not None
        assert full_response.usage is not None
        assert (last.prompt_tokens, last.completion_tokens) == (full_response.usage.prompt_tokens, 24)
        async with there.anthropic().messages.stream(
            model="own/tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=9
        ) as events:
            final = await events.get_final_message()
        assert final.usage.output_tokens == 9


async def test_stop_sequence_ends_the_answer_before_it(tmp_path: Path) -> None:
    async with talking(tmp_path) as there:
        full_text = (await there.chat(model="own/tiny", **SAMPLING_FIELDS)).json()["choices"][0]["message"][
            "content"
        ]
        word = next(letter for letter in full_text[4:] if letter.isascii() and letter.isprintable())
        cut = (await there.chat(model="own/tiny", stop=[word], **SAMPLING_FIELDS)).json()["choices"][0]
        assert cut["finish_reason"] == "stop"
        assert cut["message"]["content"] == full_text.partition(word)[0]


async def test_input_beyond_the_context_is_refused(tmp_path: Path) -> None:
    async with talking(tmp_path, context=256) as there:
        answer = await there.chat("hello " * 200, model="own/tiny")
        response = answer.json()["error"]
        assert answer.status_code == 400, response
        assert response["message"] == "This conversation has 1219 tokens, and the model has a context of 256"
        assert response["code"] == "context_length_exceeded"
        assert (await there.chat("hello", model="own/tiny", max_tokens=4)).status_code == 200


async def test_disconnect_stops_the_local_model(tmp_path: Path) -> None:
    async with (
        talking(tmp_path, context=65536, trained=65536, slots=1) as there,
        listening(there.app.asgi) as origin,
        httpx.AsyncClient(base_url=origin, headers=there.headers, timeout=60) as client,
    ):
        body = {"model": "own/tiny", "messages": [{"role": "user", "content": "hi"}], "ignore_eos": True}
        long = {**body, "max_tokens": 60_000, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=long) as stream:
            await anext(stream.aiter_lines())
        # The server has one slot, which the canceled stream must release.
        short = await client.post("/v1/chat/completions", json={**body, "max_tokens": 4})
        assert short.status_code == 200
        assert await generated_tokens(there) < 60_000
        assert await there.pending() == 0


async def test_conversations_share_a_model_and_wait_for_a_free_slot(tmp_path: Path) -> None:
    async with talking(tmp_path, slots=2) as there:
        responses = await asyncio.gather(
            *(there.chat(f"word {number}", model="own/tiny", max_tokens=20) for number in range(8))
        )
        assert [response.status_code for response in responses] == [200] * 8
        assert len(model_server(there).pool) == 1


async def test_killed_model_process_restarts_and_loses_nothing(tmp_path: Path) -> None:
    async with talking(tmp_path) as there:
        assert (await there.chat(model="own/tiny", max_tokens=4)).status_code == 200
        current_process = await process(there)
        os.kill(current_process.process.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            await current_process.process.wait()
        assert (await there.chat(model="own/tiny", max_tokens=4)).status_code == 200
        assert (await process(there)).process.pid != current_process.process.pid


async def test_models_are_swapped_in_memory_and_unloaded_when_idle(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "models" / "second.gguf", seed=1)
    async with talking(tmp_path, idle_seconds=0.1) as there:
        assert (await there.chat(model="own/tiny", max_tokens=4)).status_code == 200
        first = await process(there)
        assert (await there.chat(model="own/second", max_tokens=4)).status_code == 200
        assert not first.alive
        async with asyncio.timeout(60):
            await (await process(there, "second")).process.wait()
        assert len(model_server(there).pool) == 0
        assert (await there.chat(model="own/tiny", max_tokens=4)).status_code == 200


async def test_unsupported_gguf_file_is_502_and_free(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "models" / "odd.gguf", architecture="oddity")
    (tmp_path / "models" / "none.gguf").write_bytes(b"no model")
    async with talking(tmp_path) as there:
        response = await there.chat(model="own/odd")
        assert response.status_code == 502
        assert "cannot load odd: unknown model architecture: 'oddity'" in response.json()["error"]["message"]
        assert model_server(there).models() == ("odd", "tiny")
        assert await there.pending() == 0


async def test_added_gguf_model_serves_without_configuration(tmp_path: Path) -> None:
    added = tmp_path / "weights" / "chat" / "small"
    tiny_gguf.write(added / "model-q4.gguf")
    (added / "sixfold.json").write_text('{"added": "2026-01-01T00:00:00+00:00"}')
    async with running_gateway(
        tmp_path, models=app_catalog.models_document(), upstreams={}, prices={}, timeout_seconds=60
    ) as there:
        items = (await there.app.client.get("/v1/models", headers=there.headers)).json()["data"]
        assert {row["id"] for row in items} >= {"gguf/small", "small", "default"}
        response = await there.chat(model="default", max_tokens=4)
        assert response.status_code == 200, response.text


async def test_invalid_slots_setting_prevents_startup(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"own\] slots must be a whole number from 1 to 64 \(got 0\)"):
        async with talking(tmp_path, slots=0):
            pass
