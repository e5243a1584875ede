"""Objects that a provider stores, named in chats and messages: only their account may name them."""

from __future__ import annotations

import base64
from typing import Any

import anthropic
import openai
import pytest

from sixfold.api.gateway import provider_objects
from sixfold.core.gateway.routing import ModelRouter
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
THEIRS = "file_theirs"
USER: Any = {"role": "user", "content": "say 2 words"}


def content(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts]}]}


CHATS: list[dict[str, Any]] = [
    {"messages": [{"role": "assistant", "audio": {"id": THEIRS}}, USER]},
    {"messages": [USER], "audio": {"format": "mp3", "voice": {"id": THEIRS}}},
    content({"type": "file", "file": {"file_id": THEIRS}}),
    content({"type": "input_image", "file_id": THEIRS}),
    content({"type": "image_file", "image_file": {"file_id": THEIRS}}),
    {"messages": [USER], "tools": [{"type": "code_interpreter", "container": {"file_ids": [THEIRS]}}]},
    {"messages": [USER], "container": THEIRS},
]
MESSAGES: list[dict[str, Any]] = [
    {"messages": [USER], "container": THEIRS},
    {"messages": [USER], "container": {"id": THEIRS, "skills": []}},
    {"messages": [USER], "container": {"skills": [{"type": "custom", "skill_id": THEIRS}]}},
    content({"type": "document", "source": {"type": "file", "file_id": THEIRS}}),
    content({"type": "image", "source": {"type": "file", "file_id": THEIRS}}),
    content({"type": "container_upload", "file_id": THEIRS}),
    content({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "x", "file_id": THEIRS}]}),
]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        *(("/v1/chat/completions", fields) for fields in CHATS),
        *(("/v1/messages", {"max_tokens": 9, **fields}) for fields in MESSAGES),
        ("/v1/images/edits", {"prompt": "x", "images": [{"file_id": THEIRS}]}),
        ("/v1/audio/speech", {"input": "x", "voice": {"id": THEIRS}}),
    ],
)
async def test_foreign_object_is_not_found(
    gateway: Gateway, path: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The providers that store files read documents.
    monkeypatch.setattr(ModelRouter, "reads_documents", lambda *_: True)
    server = gateway.anth if path == "/v1/messages" else gateway.acme
    body = {"model": "anth/small" if server is gateway.anth else "acme/small", **fields}
    response = await gateway.app.client.post(path, json=body, headers=gateway.headers)
    assert (response.status_code, server.requests) == (404, [])
    assert THEIRS in response.json()["error"]["message"]
    if path == "/v1/messages":
        assert response.json()["error"]["type"] == "not_found_error"
        counted = await gateway.app.client.post(f"{path}/count_tokens", json=body, headers=gateway.headers)
        assert (counted.status_code, server.requests) == (404, [])
    escaped = response.request.content.replace(b"id", b"\\u0069d").replace(b"audio", b"\\u0061udio")
    response = await gateway.app.client.post(path, content=escaped, headers=gateway.headers)
    assert (response.status_code, server.requests) == (404, [])
    assert await gateway.app.balance() == ("5.00", "0.00")


async def test_operator_names_any_object_and_schemas_name_such_fields(gateway: Gateway) -> None:
    operator = bearer(await gateway.app.operator_key())
    body = {"model": "anth/small", "max_tokens": 9, "messages": [USER], "container": THEIRS}
    response = await gateway.app.client.post("/v1/messages", json=body, headers=operator)
    assert (response.status_code, gateway.anth.requests[-1].document["container"]) == (200, THEIRS)
    schema = {"type": "object", "properties": {"file_id": {"type": "string"}}, "examples": [{"file_id": "x"}]}
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {"file_id": "x", "container": "y"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "sun"}]}
    skills = {"skills": [{"type": "anthropic", "skill_id": "pptx", "version": "latest"}]}
    body = {
        **body,
        "container": skills,
        "tools": [{"name": "f", "input_schema": schema}],
        "messages": [USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}],
    }
    response = await gateway.app.client.post("/v1/messages", json=body, headers=gateway.headers)
    assert response.status_code == 200
    assert gateway.anth.requests[-1].document["container"] == skills
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert (await gateway.chat(tools=[tool], metadata={"file_id": "x"})).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_audio_belongs_to_the_account_that_created_it(gateway: Gateway, stream: bool) -> None:
    gateway.acme.stored_fields = {"audio": {"id": "audio_1", "data": "AAAA"}}
    voice = {"audio": {"voice": "alloy", "format": "pcm16"}, "modalities": ["text", "audio"]}
    response = await gateway.chat(stream=stream, **voice)
    assert response.status_code == 200
    assert "audio_1" in response.text
    messages: Any = [USER, {"role": "assistant", "audio": {"id": "audio_1"}}, USER]
    second_completion = await gateway.openai().chat.completions.create(model="acme/small", messages=messages)
    assert second_completion.choices[0].message.content == "word word"
    assert gateway.acme.requests[-1].document["messages"] == messages
    with pytest.raises(openai.NotFoundError, match="audio_1"):
        await gateway.openai(gateway.app.other).chat.completions.create(model="acme/small", messages=messages)


@pytest.mark.parametrize("stream", [False, True])
async def test_container_of_a_message_belongs_to_its_account(gateway: Gateway, stream: bool) -> None:
    gateway.anth.stored_fields = {"container": {"id": "container_1", "expires_at": "2027-01-01T00:00:00Z"}}
    tool: Any = {"type": "code_execution_20250825", "name": "code_execution"}
    result: Any = await gateway.anthropic().messages.create(
        model="anth/small", max_tokens=50, messages=[USER], tools=[tool], stream=stream
    )
    if stream:
        assert [event.type async for event in result][-1] == "message_stop"
    more: Any = {"extra_body": {"container": "container_1"}}
    question: Any = {"model": "anth/small", "max_tokens": 50, "messages": [USER]}
    await gateway.anthropic().messages.create(**question, **more)
    assert gateway.anth.requests[-1].document["container"] == "container_1"
    with pytest.raises(anthropic.NotFoundError, match="container_1"):
        await gateway.anthropic(gateway.app.other).messages.create(**question, **more)
    # Another server may have assigned the same id to another account.
    with pytest.raises(openai.NotFoundError, match="container_1"):
        await gateway.openai().chat.completions.create(model="acme/small", messages=[USER], extra_body=more)


async def test_image_of_this_server_is_sent_as_its_bytes(gateway: Gateway) -> None:
    file = await gateway.openai().files.create(file=("dot.png", PNG), purpose="vision")
    data = base64.b64encode(PNG).decode()
    image: Any = {"type": "image", "source": {"type": "file", "file_id": file.id}}
    messages: Any = [{"role": "user", "content": [image]}]
    await gateway.anthropic().messages.create(model="anth/small", max_tokens=50, messages=messages)
    (block,) = gateway.anth.requests[-1].document["messages"][0]["content"]
    assert block["source"] == {"type": "base64", "media_type": "image/png", "data": data}
    items: Any = [{"role": "user", "content": [{"type": "input_image", "file_id": file.id}]}]
    await gateway.openai().responses.create(model="acme/small", input=items)
    (part,) = gateway.acme.requests[-1].document["messages"][0]["content"]
    assert part["image_url"]["url"] == f"data:image/png;base64,{data}"
    with pytest.raises(anthropic.NotFoundError, match=file.id):
        await gateway.anthropic(gateway.app.other).messages.create(
            model="anth/small", max_tokens=50, messages=messages
        )


def test_ids_that_a_caller_can_choose_are_not_recorded() -> None:
    call = {"type": "tool_use", "input": {"file_id": "a", "container": {"id": "b"}}}
    outside = {"type": "mcp_tool_result", "content": [{"type": "x", "file_id": "c"}]}
    files = [{"type": "bash_code_execution_output", "file_id": "file_1"}]
    ran = {"type": "bash_code_execution_tool_result", "content": {"content": files}}
    message = {"content": [call, outside, ran], "container": {"id": "container_1"}}
    assert set(provider_objects.created_ids("messages", message)) == {"container_1", "file_1"}
    item = {"type": "mcp_list_tools", "tools": [{"input_schema": {"container_id": "d", "file_id": "e"}}]}
    assert list(provider_objects.ids_in_item(item)) == []


async def test_form_with_an_id_of_an_object_is_refused(gateway: Gateway) -> None:
    form = {"model": "acme/small", "prompt": "x", "images[0][file_id]": THEIRS}
    response = await gateway.app.client.post(
        "/v1/images/edits", data=form, files={"image": ("a.png", PNG, "image/png")}, headers=gateway.headers
    )
    assert (response.status_code, gateway.acme.requests) == (400, [])
