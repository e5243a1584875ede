"""Bodies with many values and keys are rejected before they are built."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold import errors
from sixfold.web.bodies import BodyBudget
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.tenants import routes
from tests.api.test_media import BAD_KEY

MIB = 2**20
# More values than the route accepts, or than any route accepts.
DENSE = b'{"text":"' + b"x" * 8 * MIB + b'","a":[' + b"{}," * 100_000 + b"{}]"
DENSEST = b'{"a":[' + b"{}," * (31 * MIB // 3) + b"{}]"
ROUTE_LIMIT = "The JSON document may have at most 50,000 arrays and objects"
SERVER_LIMIT = "The JSON document may have at most 150,000 arrays and objects"
PUBLISH = "/api/create-post"
PLACES = [
    b'{"api_key":%s,"text":"hello","media_bytes":"%s"}',
    b'{"text":"hello","api_key":%s,"media_bytes":"%s"}',
    b'{"media_bytes":"%s","text":"hello","api_key":%s}',
    b'{"api_key":"sf_wrong","text":"hello","api_key":%s,"media_bytes":"%s"}',
    b'{"api\\u005fkey":%s,"text":"hello","media_bytes":"%s"}',
    b'\n {"x":{"api_key":"sf_wrong"},"y":["api_key"],"api_key" : %s ,"media_bytes":"%s"}',
]
"""JSON with the key in each place; no media, so that a good key is answered 400 for it."""


def place_filler(template: bytes, key: str, filler: bytes) -> bytes:
    values = (
        (filler, json.dumps(key).encode())
        if template.startswith(b'{"media_bytes"')
        else (json.dumps(key).encode(), filler)
    )
    return template % values


@pytest.mark.parametrize("template", PLACES)
@pytest.mark.parametrize("size", [12, 2 * MIB])
async def test_key_in_a_json_body_is_found_in_any_position(
    app: AppFixture, template: bytes, size: int
) -> None:
    good = await app.client.post(PUBLISH, content=place_filler(template, app.key, b"A" * size))
    wrong = await app.client.post(PUBLISH, content=place_filler(template, "sf_wrong", b"A" * size))
    assert (good.status_code, "image" in good.json()["error"]) == (400, True)
    assert (wrong.status_code, wrong.json()) == (401, BAD_KEY)


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":{"api_key":KEY},"y":[{"api_key":KEY}]}',
        b'{"x":"\\"api_key\\":KEY"}',
        b'{"api_key":[KEY]}',
        b'{"api_key":KEY,"api_key":5}',
        b'{"api_key":KEY,"api_key":"' + b"x" * 5000 + b'"}',
        b'{"api_key":null}',
        b'{"Api_Key":KEY}',
    ],
)
async def test_nested_or_non_text_key_is_ignored(app: AppFixture, body: bytes) -> None:
    raw = body.replace(b"KEY", json.dumps(app.key).encode() if b'"\\"' not in body else app.key.encode())
    response = await app.client.post(PUBLISH, content=raw)
    assert (response.status_code, response.json()) == (401, BAD_KEY)


@pytest.mark.parametrize("order", ["first", "last"])
async def test_key_in_a_form_is_found_before_and_after_a_large_file(app: AppFixture, order: str) -> None:
    def form(key: str) -> bytes:
        field = b'--b\r\nContent-Disposition: form-data; name="api_key"\r\n\r\n%s\r\n' % key.encode()
        noise = b'--b\r\nContent-Disposition: form-data; name="api_key"; filename="x"\r\n\r\nsf_wrong\r\n'
        file = b'--b\r\nContent-Disposition: form-data; name="media"; filename="x"\r\n\r\n%s\r\n'
        file %= b'name="api_key"\r\n\r\nsf_wrong\r\n-' * 100_000
        return noise + (field + file if order == "first" else file + field) + b"--b--\r\n"

    headers = {"Content-Type": 'multipart/form-data; boundary="b"'}
    good = await app.client.post(PUBLISH, content=form(app.key), headers=headers)
    wrong = await app.client.post(PUBLISH, content=form("sf_wrong"), headers=headers)
    assert (good.status_code, "Invalid media" in good.json()["error"]) == (400, True)
    assert (wrong.status_code, wrong.json()) == (401, BAD_KEY)


async def test_key_in_an_urlencoded_form_is_found_encoded_and_last(app: AppFixture) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    raw = b"text=" + b"A" * MIB + b"&api%5Fkey=" + app.key.replace("_", "%5F").encode() + b"&api_key="
    good = await app.client.post(PUBLISH, content=raw, headers=headers)
    wrong = await app.client.post(PUBLISH, content=raw + b"sf_wrong", headers=headers)
    assert (good.status_code, wrong.status_code) == (400, 401)


async def traced_post(app: AppFixture, raw: bytes) -> tuple[httpx.Response, int]:
    """Post a body; return the response, and the peak of the allocated bytes."""
    tracemalloc.start()
    try:
        response = await app.client.post(PUBLISH, content=raw)
        return response, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("key", [b"", b',"api_key":"sf_wrong"', b',"api_key":{"a":1}'])
async def test_large_body_without_a_valid_key_is_not_decoded(app: AppFixture, key: bytes) -> None:
    raw = DENSE + key + b"}"
    response, peak = await traced_post(app, raw)
    assert (response.status_code, response.json()) == (401, BAD_KEY)
    # Decoding the whole body takes more than 20 times its size.
    assert peak < 3 * len(raw)


@pytest.mark.parametrize("key", [b"", b',"api_key":"sf_wrong"'])
async def test_body_with_too_many_values_is_not_searched_for_a_key(app: AppFixture, key: bytes) -> None:
    raw = DENSEST + key + b"}"
    response, peak = await traced_post(app, raw)
    assert (response.status_code, response.json()) == (400, {"error": SERVER_LIMIT, "status": 400})
    assert peak < 3 * len(raw)


async def test_large_body_with_too_many_values_names_the_limit(app: AppFixture) -> None:
    response = await app.client.post(PUBLISH, content=DENSE + b"}", headers=app.bearer)
    assert (response.status_code, response.json()) == (400, {"error": ROUTE_LIMIT, "status": 400})


async def test_urlencoded_form_with_too_many_escapes_names_the_limit(app: AppFixture) -> None:
    headers = {**app.bearer, "Content-Type": "application/x-www-form-urlencoded"}
    most, over = (b"text=" + b"%41" * count for count in (2_400_000, 2_400_001))
    accepted = await app.client.post(PUBLISH, content=most, headers=headers)
    response = await app.client.post(PUBLISH, content=over, headers=headers)
    assert "percent" not in accepted.json()["error"]
    assert (response.status_code, response.json()["error"]) == (
        400,
        "The form may have at most 2,400,000 percent-encoded bytes",
    )


async def test_key_in_the_body_wins_over_the_one_in_the_header(app: AppFixture) -> None:
    body = {"api_key": "sf_wrong", "text": "x"}
    wrong = await app.client.post(PUBLISH, json=body, headers=app.bearer)
    right = await app.client.post(PUBLISH, json={**body, "api_key": app.key}, headers=bearer("sf_wrong"))
    assert (wrong.status_code, right.status_code) == (401, 400)


async def test_every_json_route_refuses_too_many_values(tmp_path: Path) -> None:
    dense = b'{"model":"m","max_tokens":5,"messages":[{}],"input":"x","a":[' + b"{}," * 300_000 + b"{}]}"
    async with running_app(tmp_path) as app:
        grown: list[tuple[str, str, int]] = []
        for method, path in routes(app.asgi):
            if method == "GET" or path == "/api/account":
                continue
            address = path.replace("{", "x").replace("}", "").replace(":path", "")
            for headers in ({}, app.bearer):
                sent = {**headers, "Content-Type": "application/json"}
                tracemalloc.start()
                try:
                    response = await app.client.request(method, address, content=dense, headers=sent)
                    _, peak = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
                assert response.status_code != 500, path
                if peak > 8 * len(dense):
                    grown.append((method, path, peak))
        assert not grown, grown


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/chat/completions", ("error", "message")),
        ("/v1/responses", ("error", "message")),
        ("/v1/messages", ("error", "message")),
        ("/v1/embeddings", ("error", "message")),
        ("/api/service", ("error",)),
        ("/api/containers/run", ("error",)),
        ("/mcp", ("error", "message")),
        ("/api/style-transfer", ("detail", 0, "msg")),
        ("/replicate/v1/predictions", ("detail",)),
    ],
)
async def test_too_many_values_error_has_the_format_of_the_api(
    app: AppFixture, path: str, shape: tuple[Any, ...]
) -> None:
    dense = b'{"model":"m","max_tokens":5,"messages":[{}],"input":"x","a":[' + b"{}," * 60_000 + b"{}]}"
    response = await app.client.post(path, content=dense, headers=app.bearer)
    body = response.json()
    for name in shape:
        body = body[name]
    assert response.status_code in (400, 422)
    assert body == ROUTE_LIMIT


async def test_workflow_of_five_thousand_nodes_is_decoded(app: AppFixture) -> None:
    pins = [
        {"name": f"input {pin}", "type": "LATENT", "link": pin, "localized_name": "x"} for pin in range(8)
    ]
    node = {"type": "Nothing", "pos": [1, 2], "size": {"0": 1, "1": 2}, "flags": {}, "order": 1, "mode": 0}
    node |= {
        "inputs": pins,
        "outputs": pins[:3],
        "properties": {"Node name for S&R": "x"},
        "widgets_values": [1, 2],
    }
    workflow = {"nodes": [{"id": number, **node} for number in range(5000)], "links": [], "version": 0.4}
    response = await app.client.post("/api/graph/validate", json={"workflow": workflow}, headers=app.bearer)
    assert "JSON document" not in response.text


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999"])
async def test_non_finite_number_is_refused_in_forms_and_json_texts(app: AppFixture, text: str) -> None:
    form = {"api_key": app.key, "prompt": "x", "guidance_scale": text, "duration": text, "seed": text}
    for path in ("/api/video-text", "/api/ra2v"):
        response = await app.client.post(path, data=form)
        assert response.status_code == 400, (path, response.text)


async def test_budget_for_unknown_keys_is_enforced_and_released(tmp_path: Path) -> None:
    started, goes_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"a":"' + b"A" * (2 * MIB)
        started.set()
        await goes_on.wait()
        yield b'"}'

    async with running_app(tmp_path, unauthenticated_body_bytes=4 * MIB) as app:
        pending_task = asyncio.create_task(app.client.post(PUBLISH, content=slow()))
        await started.wait()
        big = b'{"api_key":"sf_wrong","a":"' + b"A" * MIB + b'"}'
        response = await app.client.post(PUBLISH, content=big)
        keyed = await app.client.post(PUBLISH, content=big.replace(b"api_key", b"x"), headers=app.bearer)
        small = await app.client.post(PUBLISH, json={"api_key": app.key})
        goes_on.set()
        first, later = await pending_task, await app.client.post(PUBLISH, content=big)
    assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
    assert [answer.status_code for answer in (keyed, small, first, later)] == [400, 400, 401, 401]


async def test_memory_for_bodies_is_enforced_and_released(tmp_path: Path) -> None:
    started, goes_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"a":"' + b"A" * (2 * MIB)
        started.set()
        await goes_on.wait()
        yield b'"}'

    run, big = "/api/containers/run", b'{"a":"' + b"A" * MIB + b'"}'
    async with running_app(tmp_path, body_memory_bytes=4 * MIB) as app:
        pending_task = asyncio.create_task(app.client.post(run, content=slow(), headers=app.bearer))
        await started.wait()
        response = await app.client.post(run, content=big, headers=app.bearer)
        small = await app.client.post(run, json={}, headers=app.bearer)
        chat = await app.client.post("/v1/chat/completions", content=big, headers=app.bearer)
        upload = await app.client.post("/api/uploads", content=big, headers=app.bearer)
        async with app.visitor("203.0.113.7") as visitor:
            elsewhere = await visitor.post(run, content=big, headers=app.bearer)
        goes_on.set()
        first, later = await pending_task, await app.client.post(run, content=big, headers=app.bearer)
    assert (response.status_code, response.headers["Retry-After"], chat.status_code) == (429, "1", 429)
    assert [answer.status_code for answer in (small, elsewhere, first, later)] == [400] * 4
    assert upload.status_code not in (413, 429)


async def test_body_budget_bounds_all_callers_together() -> None:
    budget = BodyBudget(4 * MIB, "unauthenticated_body", "Retry")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * (MIB + 64 * 1024), "more_body": True}

    with budget.track("a", receive) as first, budget.track("b", receive) as second:
        await first()
        await second()
        with budget.track("c", receive) as third:
            await third()
        with budget.track("c", receive) as third, budget.track("d", receive) as fourth:
            await third()
            await fourth()
            with budget.track("e", receive) as fifth, pytest.raises(errors.TooManyRequests):
                await fifth()


@pytest.mark.parametrize(
    "project", ["[" * 20_000, '{"a":' * 20_000, '{"a":NaN}', "[" + "{}," * 60_000 + "{}]"]
)
async def test_invalid_json_project_in_a_form_is_refused(app: AppFixture, project: str) -> None:
    form = {"api_key": app.key, "project": project}
    response = await app.client.post("/api/video-editor/render", data=form)
    assert (response.status_code, "project" in response.text or "JSON document" in response.text) == (
        400,
        True,
    )
