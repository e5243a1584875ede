"""URLs in conversations: all of them are detected, and nothing else is changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.gateway.attachments.media_inlining import MAX_URLS, MediaInliner

URL = "https://example.com/a.png"
DATA = "data:image/png;base64,aGk="


class FakeStore:
    """Store whose every object has the content `hi`."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.places: list[int] = []

    async def fetch(
        self, _tenant: Tenant, _name: str, kind: str, address: str, place: int
    ) -> tuple[str, bytes]:
        self.requests.append(f"{kind} {address}")
        self.places.append(place)
        return "image/png", b"hi"


async def image_message(store: FakeStore, body: Any) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads(await MediaInliner(store.fetch).inline(Tenant("acct_1"), raw))


def turn(*parts: Any) -> Any:
    return {"messages": [{"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize(
    ("part", "became"),
    [
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, {"url": DATA, "detail": "low"}),
        ({"type": "image_url", "image_url": URL}, DATA),
        ({"type": "image_url", "image_url": " HTTPS://example.com/a.png"}, DATA),
        (
            {"type": "image", "source": {"type": "url", "url": URL}},
            {"type": "base64", "media_type": "image/png", "data": "aGk="},
        ),
    ],
)
async def test_url_of_an_image_is_replaced_by_its_bytes(part: Any, became: Any) -> None:
    response = await image_message(FakeStore(), turn(part))
    assert (
        next(value for name, value in response["messages"][0]["content"][0].items() if name != "type")
        == became
    )


@pytest.mark.parametrize(
    "named",
    [
        {"tools": [{"type": "function"}, {"type": "mcp", "server_url": "http://10.0.0.1/mcp"}]},
        {"tools": [{"type": "mcp", "server_url": {"url": URL}}]},
        {"mcp_servers": [{"type": "url", "url": "http://10.0.0.1/mcp"}]},
    ],
)
async def test_url_of_an_mcp_server_is_refused(named: dict[str, Any]) -> None:
    store, (name,) = FakeStore(), named
    raw = json.dumps(turn() | named)
    escaped = raw.replace(name, f"\\u{ord(name[0]):04x}{name[1:]}").replace("server_url", "server\\u005furl")
    for body in (raw, escaped):
        with pytest.raises(errors.InvalidInput, match=f"{name}: a model server in the local network"):
            await image_message(store, body.encode())
    assert store.requests == []
    fields = {"tools": [{"type": "mcp", "server_label": "own"}], "mcp_servers": []}
    assert (await image_message(store, turn() | fields))["tools"] == fields["tools"]


async def test_nested_parts_and_escaped_names_are_detected() -> None:
    store = FakeStore()
    image = {"type": "input_image", "image_url": URL}
    result = {"type": "tool_result", "content": [{"type": "image", "source": {"type": "url", "url": URL}}]}
    await image_message(store, {"input": [{"type": "function_call_output", "output": [image]}]})
    await image_message(store, turn(result))
    await image_message(
        store, json.dumps(turn({"video_url": {"url": URL}})).replace("video_url", "video\\u005furl").encode()
    )
    assert store.requests == [f"image {URL}", f"image {URL}", f"video {URL}"]


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "/etc/passwd", " FTP://example.com/a.png", "a.png"]
)
async def test_file_urls_use_the_same_fetcher(address: str) -> None:
    store = FakeStore()
    await image_message(store, turn({"type": "image_url", "image_url": {"url": address}}))
    assert store.requests == [f"image {address.strip()}"]


@pytest.mark.parametrize(
    ("body", "request_line"),
    [
        (turn({"type": "image_url", "image_url": {"url": URL}}), f"image {URL}"),
        ({"input": [{"type": "image_url", "image_url": {"url": URL}}]}, f"image {URL}"),
        ({"input": "x", "ref_audio": URL}, f"audio {URL}"),
        (
            {"documents": [{"content": [{"video_url": {"url": "file:///etc/passwd"}}]}]},
            "video file:///etc/passwd",
        ),
        ({"extra": {"deep": [{"url": URL}]}}, f"file {URL}"),
    ],
)
async def test_urls_anywhere_in_other_requests_are_inlined(body: Any, request_line: str) -> None:
    for raw in (json.dumps(body), json.dumps(body).replace("_url", "\\u005furl")):
        store = FakeStore()
        data = await MediaInliner(store.fetch).inline(Tenant("acct_1"), raw.encode(), is_chat=False)
        assert (store.requests, DATA in data.decode()) == ([request_line], True)


async def test_texts_and_base64_of_other_requests_are_unchanged() -> None:
    store = FakeStore()
    raw = json.dumps({"input": [URL], "image": "aGk=", "url": "not one", "image_url": DATA}).encode()
    assert await MediaInliner(store.fetch).inline(Tenant("acct_1"), raw, is_chat=False) == raw
    assert store.requests == []


async def test_other_values_are_unchanged() -> None:
    store = FakeStore()
    call = {"role": "assistant", "content": [{"type": "tool_use", "input": {"image_url": URL}}]}
    result = {"type": "search_result", "source": URL}
    parts = turn({"image_url": {"url": DATA}}, {"image_url": 5}, result, "x")["messages"]
    body = {"messages": [call, *parts, 5]}
    assert await image_message(store, body) == body
    plain = b'{"messages": [{"content":  "https://example.com"}]}'
    assert await MediaInliner(store.fetch).inline(Tenant("acct_1"), plain) == plain
    assert store.requests == []


async def test_too_many_urls_and_invalid_json_are_refused() -> None:
    with pytest.raises(errors.InvalidInput, match=f"{MAX_URLS} media URLs"):
        await image_message(FakeStore(), turn(*[{"image_url": URL}] * (MAX_URLS + 1)))
    with pytest.raises(errors.BadRequest):
        await image_message(FakeStore(), b'{"image_url": ')


async def test_urls_of_each_attempt_have_the_same_numbers() -> None:
    store, part = FakeStore(), {"type": "image_url", "image_url": URL}
    for _ in range(2):
        await image_message(store, turn(part, part))
    assert store.places == [0, 1, 0, 1]
