"""Documents in chats: their text for servers that read none, with the official clients."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from sixfold.api.gateway.chat_documents import ChatDocuments
from sixfold.core.accounts import connections, keys
from sixfold.core.concurrency import loaded_objects
from sixfold.core.concurrency.memory_limit import MemoryLease, MemoryLimit
from sixfold.core.files.files import AccountFile, AccountFiles
from sixfold.core.gateway.routing import ModelRouter
from sixfold.core.media.media import MediaService
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_own_work import PIXEL
from tests.fakes import documents as fakes

REPORT = fakes.pdf(["The airship report.", "Rotors turn left."], title="Airships")
TEXT = "[p. 1]\n\nThe airship report.\n\n[p. 2]\n\nRotors turn left."
SHOWN = f'<document name="report.pdf">\n{TEXT}\n</document>'
DATA = base64.b64encode(REPORT).decode()
URI = f"data:application/pdf;base64,{DATA}"


async def chat(gateway: Gateway, *parts: dict[str, Any], model: str = "acme/small", **more: Any) -> Any:
    """Return the response to a chat with these parts."""
    messages: Any = [{"role": "user", "content": [*parts]}]
    return await gateway.openai().chat.completions.create(model=model, messages=messages, **more)


async def respond(gateway: Gateway, *parts: dict[str, Any], model: str = "acme/small") -> Any:
    """Return the response of the Responses API to these parts."""
    items: Any = [{"role": "user", "content": [*parts]}]
    return await gateway.openai().responses.create(model=model, input=items)


async def message(gateway: Gateway, *blocks: dict[str, Any], model: str = "anth/small") -> Any:
    """Return the response to a message with these blocks."""
    messages: Any = [{"role": "user", "content": [*blocks]}]
    return await gateway.anthropic().messages.create(model=model, max_tokens=50, messages=messages)


def texts(request: Any) -> list[str]:
    """Return the texts that a model server received, in either protocol."""
    results: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            results.extend([value["text"]] if isinstance(value.get("text"), str) else [])
            results.extend([value["content"]] if isinstance(value.get("content"), str) else [])
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(request.document)
    return results


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_file_of_a_chat_is_text_for_the_server(gateway: Gateway, model: str) -> None:
    await chat(
        gateway,
        {"type": "text", "text": "say 3 words"},
        {"type": "file", "file": {"filename": "report.pdf", "file_data": URI}},
        model=model,
    )
    server = gateway.acme if model.startswith("acme") else gateway.anth
    assert SHOWN in "\n".join(texts(server.requests[-1]))
    assert DATA not in json.dumps(server.requests[-1].document)


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_input_file_of_a_response_is_text(gateway: Gateway, model: str) -> None:
    await respond(
        gateway,
        {"type": "input_text", "text": "say 3 words"},
        {"type": "input_file", "filename": "report.pdf", "file_data": URI},
        model=model,
    )
    server = gateway.acme if model.startswith("acme") else gateway.anth
    assert SHOWN in "\n".join(texts(server.requests[-1]))


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_document_blocks_of_every_source_are_text(gateway: Gateway, model: str) -> None:
    await message(
        gateway,
        {
            "type": "document",
            "title": "report.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": DATA},
        },
        {
            "type": "document",
            "context": "A note.",
            "source": {"type": "text", "media_type": "text/plain", "data": "plain"},
        },
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "inner"}]}},
        {"type": "text", "text": "say 3 words"},
        model=model,
    )
    server = gateway.acme if model.startswith("acme") else gateway.anth
    sent = "\n".join(texts(server.requests[-1]))
    assert SHOWN in sent
    assert "<document>\nA note.\n\nplain\n</document>" in sent
    assert "<document>\ninner\n</document>" in sent


async def test_stored_file_is_named_by_its_id(gateway: Gateway) -> None:
    client = gateway.openai()
    file = await client.files.create(file=("report.pdf", REPORT), purpose="user_data")
    await chat(
        gateway, {"type": "file", "file": {"file_id": file.id}}, {"type": "text", "text": "say 3 words"}
    )
    await respond(gateway, {"type": "input_file", "file_id": file.id})
    await message(gateway, {"type": "document", "source": {"type": "file", "file_id": file.id}})
    for request in (*gateway.acme.requests[-2:], gateway.anth.requests[-1]):
        assert TEXT in "\n".join(texts(request))
    other = gateway.openai(key=gateway.app.other)
    with pytest.raises(openai.NotFoundError, match="No such File object"):
        await other.chat.completions.create(
            model="acme/small",
            messages=[{"role": "user", "content": [{"type": "file", "file": {"file_id": file.id}}]}],
        )


@pytest.fixture
async def cheap_gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway with prices at which an account can pay the hold of a document."""
    price = {"input_per_million_usd": "1", "output_per_million_usd": "1"}
    async with running_gateway(tmp_path, prices={"acme/small": price, "anth/small": price}) as result:
        yield result


async def test_server_that_reads_documents_gets_them_as_they_are(
    cheap_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = cheap_gateway
    monkeypatch.setattr(ModelRouter, "reads_documents", lambda *_: True)
    part = {"type": "file", "file": {"filename": "report.pdf", "file_data": URI}}
    await chat(gateway, part)
    assert gateway.acme.requests[-1].document["messages"][0]["content"] == [part]
    file = await gateway.openai().files.create(file=("report.pdf", REPORT), purpose="user_data")
    # An id of this server means nothing to the provider; only the operator may name the provider's own.
    await chat(gateway, {"type": "file", "file": {"file_id": file.id}})
    assert gateway.acme.requests[-1].document["messages"][0]["content"] == [part]
    await message(gateway, {"type": "document", "source": {"type": "file", "file_id": file.id}})
    source = {"type": "base64", "media_type": "application/pdf", "data": DATA}
    assert gateway.anth.requests[-1].document["messages"][0]["content"] == [
        {"type": "document", "source": source}
    ]
    theirs = {"type": "file", "file": {"file_id": "file-theirs"}}
    with pytest.raises(openai.NotFoundError, match="file-theirs"):
        await chat(gateway, theirs)
    operator = gateway.openai(await gateway.app.operator_key())
    messages: Any = [{"role": "user", "content": [theirs]}]
    await operator.chat.completions.create(model="acme/small", messages=messages)
    assert gateway.acme.requests[-1].document["messages"] == messages


async def test_result_of_a_tool_may_have_documents(gateway: Gateway) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": DATA}
    turns: list[Any] = [
        {"role": "user", "content": "read it"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "document", "source": source}],
                }
            ],
        },
    ]
    await gateway.anthropic().messages.create(
        model="acme/small",
        max_tokens=50,
        messages=turns,
        tools=[{"name": "read", "input_schema": {"type": "object"}}],
    )
    assert TEXT in "\n".join(texts(gateway.acme.requests[-1]))


async def test_hold_covers_the_text_of_the_document(gateway: Gateway) -> None:
    long = fakes.pdf(["word " * 400] * 30)
    data = base64.b64encode(long).decode()
    counted = await gateway.anthropic().messages.count_tokens(
        model="acme/small",
        messages=[
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": data},
                    }
                ],
            }
        ],
    )
    assert counted.input_tokens > 12_000


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}}, "PDF is damaged"),
        ({"file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,?"}}, "valid base64"),
        ({"file": {"filename": "a.exe", "file_data": "data:x/y;base64,AA=="}}, "not a document"),
        ({"file": {}}, "must have base64 data"),
        ({"file": 3}, "must be an object"),
        ({"file": {"filename": 3}}, "filename of a document must be a string"),
    ],
)  # fmt: skip
async def test_unreadable_file_is_an_error_and_costs_nothing(
    gateway: Gateway, part: dict[str, Any], words: str
) -> None:
    before, calls = await gateway.app.balance(), len(gateway.acme.requests)
    with pytest.raises(openai.BadRequestError, match=words):
        await chat(gateway, {"type": "file", **part})
    assert (await gateway.app.balance(), len(gateway.acme.requests)) == (before, calls)


@pytest.mark.parametrize(
    ("owner", "method", "part"),
    [
        (ChatDocuments, "_load", {"type": "file", "file": {"filename": "report.pdf", "file_data": URI}}),
        (MediaService, "resolve", {"type": "image_url", "image_url": {"url": "/media/"}}),
    ],
)
async def test_a_key_revoked_while_a_file_is_fetched_chats_no_more(
    any_database_gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    part: dict[str, Any],
) -> None:
    gateway, app = any_database_gateway, any_database_gateway.app
    upload = await app.client.post("/api/uploads", files={"file": ("a.png", PIXEL)}, headers=app.bearer)
    part = json.loads(json.dumps(part).replace("/media/", upload.json()["url"]))
    key = await app.database.write(keys.create(app.account.id))
    fetch = getattr(owner, method)

    async def fetch_slowly(self: object, *arguments: Any, **options: Any) -> Any:
        await app.database.write(keys.revoke(key.id))
        return await fetch(self, *arguments, **options)

    monkeypatch.setattr(owner, method, fetch_slowly)
    monkeypatch.setattr(connections, "LATE_SECONDS", 0)
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "say 3 words"}, part]}]
    with pytest.raises(openai.AuthenticationError):
        await gateway.openai(key.api_key).chat.completions.create(model="acme/small", messages=messages)
    assert gateway.acme.requests == []
    assert await app.balance() == ("5.00", "0.00")


async def test_number_of_documents_is_limited(gateway: Gateway) -> None:
    part = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="}
    with pytest.raises(openai.BadRequestError, match="at most 16 documents"):
        await respond(gateway, *[part] * 17)
    await respond(gateway, *[part] * 16)
    assert "\n".join(texts(gateway.acme.requests[-1])).count("<document") == 16


async def test_files_of_a_request_are_as_large_as_its_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelRouter, "reads_documents", lambda *_: True)
    image, document = b"\x89PNG\r\n\x1a\n" + bytes(300_000), REPORT + bytes(300_000)
    async with running_gateway(tmp_path, {"inline_body_bytes": 2**20}) as gateway:
        for name, content in (("a.png", image), ("report.pdf", document)):
            file = await gateway.openai().files.create(file=(name, content), purpose="user_data")
            part: dict[str, Any] = {"type": "file", "file": {"file_id": file.id}}
            if name == "a.png":
                part = {"type": "input_image", "file_id": file.id}
            calls = len(gateway.acme.requests)
            with pytest.raises(openai.APIStatusError, match="bytes: send fewer or smaller files") as excinfo:
                await chat(gateway, *[part] * 3)
            assert (excinfo.value.status_code, len(gateway.acme.requests)) == (413, calls)


async def test_message_errors_have_the_shape_of_their_api(gateway: Gateway) -> None:
    with pytest.raises(anthropic.BadRequestError, match="must be base64, text, content") as excinfo:
        await message(gateway, {"type": "document", "source": {"type": "x"}})
    body: Any = excinfo.value.body
    assert body["error"]["type"] == "invalid_request_error"


async def test_local_url_of_a_document_is_refused(gateway: Gateway) -> None:
    for url in ("http://127.0.0.1:1/a.pdf", "file:///etc/passwd"):
        with pytest.raises(openai.BadRequestError):
            await respond(gateway, {"type": "input_file", "file_url": url})


@pytest.mark.parametrize("kind", ["document", "image"])
async def test_files_of_concurrent_requests_share_a_limit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []
    reading = AccountFiles.read

    async def read(files: AccountFiles, file: AccountFile) -> AsyncIterator[bytes]:
        loaded.append(file.size)
        try:
            async for block in reading(files, file):
                await asyncio.sleep(0)
                yield block
            most.append(sum(loaded))
        finally:
            loaded.remove(file.size)

    most: list[int] = []
    monkeypatch.setattr(AccountFiles, "read", read)
    # One account uses half of it.
    monkeypatch.setattr(loaded_objects, "MAX_BYTES", 2 * 2**20)
    image = b"\x89PNG\r\n\x1a\n" + bytes(400_000)
    async with running_gateway(tmp_path) as gateway:
        content = REPORT + b"\n%" + bytes(400_000) if kind == "document" else image
        file = await gateway.openai().files.create(file=(f"a.{kind[:3]}.pdf", content), purpose="user_data")
        part: dict[str, Any] = {"type": "input_file", "file_id": file.id}
        if kind == "image":
            part = {"type": "input_image", "file_id": file.id}
        await asyncio.gather(*(respond(gateway, part) for _ in range(8)))
    assert (len(most), max(most) < 2**20) == (8, True)


async def test_media_that_each_attempt_inlines_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    resize = MemoryLimit.resize

    async def record(limit: MemoryLimit, lease: MemoryLease, size: int) -> None:
        await resize(limit, lease, size)
        sizes.append(size)

    async with running_gateway(tmp_path) as gateway:
        image = await gateway.app.client.post("/api/ra1", json={"prompt": "x"}, headers=gateway.headers)
        part = {"type": "image_url", "image_url": {"url": image.json()["image_url"]}}
        monkeypatch.setattr(MemoryLimit, "resize", record)
        monkeypatch.setattr(loaded_objects, "_SMALL_BYTES", 0)
        gateway.acme.mode = "fail"
        body = {"model": "both", "max_tokens": 50, "messages": [{"role": "user", "content": [part, part]}]}
        response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=gateway.headers)
    assert (response.status_code, len(gateway.acme.requests), len(gateway.anth.requests)) == (200, 1, 1)
    first, both = sizes
    assert both == 2 * first
