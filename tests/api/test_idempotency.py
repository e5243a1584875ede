"""Idempotency-Key: one effect and one response, for repeated and concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import accounts, connections, idempotency, keys
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Database, Transaction, many, one
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.store.postgres.database import PostgresDatabase
from sixfold.web.idempotency import BATCH_LINE, IdempotencyGuard, IdempotentRequest
from sixfold.web.responses import error_response
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.test_gallery import png

KEY = {"Idempotency-Key": "order 66"}


def body(app: AppFixture, **more: Any) -> dict[str, Any]:
    """Return a valid body of the Media API."""
    return {"api_key": app.key, "prompt": "a fox", **more}


def are_identical(answers: list[httpx.Response]) -> bool:
    """Return whether all responses are equal in status, type and every byte."""
    return len({(a.status_code, a.headers["Content-Type"], a.content) for a in answers}) == 1


async def prediction_count(app: AppFixture) -> int:
    page, _ = await app.predictions.page(Tenant(app.account.id), PredictionFilter(), 200, None)
    return len(page)


@pytest.mark.parametrize("prompt", ["a fox", "LATE", "FAIL"])
async def test_twenty_concurrent_requests_have_one_effect(any_database_app: AppFixture, prompt: str) -> None:
    app = any_database_app
    requests = [app.client.post("/api/ra1", json=body(app, prompt=prompt), headers=KEY) for _ in range(20)]
    responses = await asyncio.gather(*requests)
    assert are_identical(responses)
    assert sum("Idempotent-Replayed" in response.headers for response in responses) == 19
    assert len({response.headers["X-Request-Id"] for response in responses}) == 20
    assert await prediction_count(app) == 1
    assert await app.balance() == ("5.00" if prompt == "FAIL" else "4.96", "0.00")
    assert await app.faults() == ()


async def test_failure_is_replayed_and_another_body_is_409(app: AppFixture) -> None:
    first = await app.client.post("/api/ra1", json=body(app, prompt="FAIL"), headers=KEY)
    second_response = await app.client.post("/api/ra1", json=body(app, prompt="FAIL"), headers=KEY)
    other = await app.client.post("/api/ra1", json=body(app), headers=KEY)
    assert are_identical([first, second_response])
    assert first.status_code == 502
    assert other.status_code == 409
    assert other.json()["error"] == "This Idempotency-Key was used with another request body or query string."


@pytest.mark.parametrize("change", [{"size": "1x1"}, {"api_key": "sf_wrong"}])
async def test_key_of_a_rejected_request_can_be_used_again(app: AppFixture, change: dict[str, str]) -> None:
    response = await app.client.post("/api/ra1", json=body(app, **change), headers=KEY)
    good = await app.client.post("/api/ra1", json=body(app), headers=KEY)
    assert response.status_code in {400, 401}
    assert good.status_code == 200


async def test_response_402_is_not_stored(app: AppFixture) -> None:
    request = {"api_key": app.poor, "prompt": "x"}
    responses = [await app.client.post("/api/ra1", json=request, headers=KEY) for _ in range(2)]
    assert [response.status_code for response in responses] == [402, 402]
    assert "Idempotent-Replayed" not in responses[1].headers


async def test_a_key_belongs_to_its_account_method_and_path(app: AppFixture) -> None:
    mine = await app.client.post("/api/ra1", json=body(app), headers=KEY)
    alias = await app.client.post("/api/ra1-art-generator", json=body(app), headers=KEY)
    others = await app.client.post("/api/ra1", json=body(app, api_key=app.other), headers=KEY)
    assert len({response.json()["image_url"] for response in (mine, alias, others)}) == 3


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_key_of_invalid_length_is_400(app: AppFixture, key: str) -> None:
    response = await app.client.post("/api/ra1", json=body(app), headers={"Idempotency-Key": key})
    assert response.status_code == 400
    longest = await app.client.post("/api/ra1", json=body(app), headers={"Idempotency-Key": "x" * 255})
    assert longest.status_code == 200


async def test_every_route_that_creates_or_charges_replays(app: AppFixture) -> None:
    image = (await app.client.post("/api/ra1", json=body(app))).json()["image_url"]
    run = {"model": "ra2", "input": {"prompt": "x", "width": 64, "height": 64}}
    style = {"source_image_url": image, "style_prompt": "ukiyo-e"}
    headers = {**app.bearer, **KEY}
    requests: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/api/anime", {"json": {"prompt": "x"}}),
        ("/api/containers/run", {"json": run}),
        ("/api/style-transfer", {"json": style}),
        ("/api/uploads", {"content": b"some text"}),
        ("/api/pages", {"json": {"slug": "fox", "body": "x"}}),
        ("/api/ra1", {"json": {"prompt": "x", "response_mode": "polling"}}),
    )
    for path, request in requests:
        responses = [await app.client.post(path, headers=headers, **request) for _ in range(2)]
        assert are_identical(responses), path
        assert responses[0].is_success
        first, second = ({**response.headers, "x-request-id": ""} for response in responses)
        assert second == first | {"idempotent-replayed": "true"}, path
    image_headers = {**headers, "Accept": "image/*"}
    images = [
        await app.client.post("/api/style-transfer", headers=image_headers, json=style) for _ in range(2)
    ]
    assert images[0].status_code == 409, "the same key asked for a URL before"


@pytest.mark.parametrize(
    ("path", "part"), [("/api/uploads", "file"), ("/api/create-post", "media"), ("/api/create-ai", "avatar")]
)
async def test_repeated_form_matches_despite_another_boundary(app: AppFixture, path: str, part: str) -> None:
    def send(picture: bytes, boundary: str) -> Awaitable[httpx.Response]:
        headers = {**app.bearer, **KEY, "Content-Type": f"multipart/form-data; boundary={boundary}"}
        return app.client.post(path, headers=headers, data={"name": "Nova"}, files={part: ("x", picture)})

    responses = [await send(png("red"), boundary) for boundary in ("one", "two")]
    assert are_identical(responses)
    assert responses[0].is_success
    assert (await send(png("blue"), "one")).status_code == 409


def keyed_request() -> Request:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/x",
        "query_string": b"",
        "headers": [(b"idempotency-key", b"order 66")],
        "sixfold.request_id": "req_1",
    }
    return Request(scope)


async def test_second_request_waits_for_the_first_up_to_a_limit(app: AppFixture) -> None:
    repeats = IdempotencyGuard(app.database, "boot_1", 0.2)
    once = IdempotentRequest(app.account.id, b"body", error_response)
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(_idempotency_id: str | None) -> Response:
        started.set()
        await release.wait()
        return Response(b"done")

    first = asyncio.create_task(repeats.run(keyed_request(), once, slow))
    await started.wait()
    with pytest.raises(errors.InProgress):
        await repeats.run(keyed_request(), once, slow)
    release.set()
    assert (await first).body == b"done"
    assert (await repeats.run(keyed_request(), once, slow)).headers["Idempotent-Replayed"] == "true"


async def test_request_without_a_stored_response_runs_again(app: AppFixture) -> None:
    repeats = IdempotencyGuard(app.database, "boot_1", 0.2)
    once = IdempotentRequest(app.account.id, b"body", error_response)

    async def broken(_idempotency_id: str | None) -> Response:
        # The server behaves like this when it is killed, or when its disk rejects the response.
        raise asyncio.CancelledError

    async def whole(_idempotency_id: str | None) -> Response:
        return Response(b"done")

    with pytest.raises(asyncio.CancelledError):
        await repeats.run(keyed_request(), once, broken)
    assert (await repeats.run(keyed_request(), once, whole)).body == b"done"


async def test_response_is_stored_when_the_database_responds_again(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repetitions that wait get it, also on another server, without running again."""
    app, runs = any_database_app, 0
    monkeypatch.setattr("sixfold.web.idempotency._POLL_SECONDS", 0.02)
    first = IdempotencyGuard(app.database, app.server.scheduler.boot, 60)
    other = IdempotencyGuard(app.database, "boot_2", 60)
    once = IdempotentRequest(app.account.id, b"body", error_response)
    database = FailingDatabase(app.database)
    monkeypatch.setattr(first, "_database", database)

    async def work(_idempotency_id: str | None) -> Response:
        nonlocal runs
        runs += 1
        return Response(b"done")

    with pytest.raises(errors.StoreFailed):
        await first.run(keyed_request(), once, work)
    # SQLite has only one server.
    guards = first, first, other if isinstance(app.database, PostgresDatabase) else first
    repetitions = [asyncio.create_task(guard.run(keyed_request(), once, work)) for guard in guards]
    for _ in range(3):
        await database.failures.get()
    assert not any(task.done() for task in repetitions)
    database.fails = False
    for response in await asyncio.gather(*repetitions):
        assert (response.body, response.headers["Idempotent-Replayed"]) == (b"done", "true")
    assert runs == 1


class FailingDatabase:
    """A database that stores no responses for an Idempotency-Key."""

    def __init__(self, database: Database) -> None:
        self.read, self._write = database.read, database.write
        self.fails, self.failures = True, asyncio.Queue[None]()

    async def write(self, transaction: Transaction[Any]) -> Any:
        if self.fails and getattr(transaction, "__name__", "") == "finish":
            self.failures.put_nowait(None)
            raise errors.StoreFailed
        return await self._write(transaction)


class UnacknowledgedDatabase:
    """A database that stores claims while its connection breaks before the result arrives."""

    def __init__(self, database: Database) -> None:
        self.read, self._write = database.read, database.write
        self.fails, self.released = True, asyncio.Event()

    async def write(self, transaction: Transaction[Any]) -> Any:
        result = await self._write(transaction)
        if self.fails:
            if getattr(transaction, "__name__", "") == "abandon":
                self.released.set()
            raise errors.StoreFailed
        return result


async def test_claim_with_an_unknown_result_is_released(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server may run the request, although the server that stored the claim still runs."""
    app = any_database_app
    monkeypatch.setattr("sixfold.web.idempotency._POLL_SECONDS", 0.02)
    first = IdempotencyGuard(app.database, app.server.scheduler.boot, 60)
    other = IdempotencyGuard(app.database, "boot_2", 60)
    once = IdempotentRequest(app.account.id, b"body", error_response)
    database = UnacknowledgedDatabase(app.database)
    monkeypatch.setattr(first, "_database", database)
    runs: list[str] = []

    async def work(_idempotency_id: str | None) -> Response:
        runs.append("run")
        return Response(b"done")

    with pytest.raises(errors.StoreFailed):
        await first.run(keyed_request(), once, work)
    database.fails = False
    # SQLite has only one server.
    guard = other if isinstance(app.database, PostgresDatabase) else first
    responses = [await each.run(keyed_request(), once, work) for each in (guard, first)]
    assert [response.body for response in responses] == [b"done", b"done"]
    assert runs == ["run"]


async def test_release_of_an_unknown_claim_excludes_new_requests(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that began before the release would lose its claim to another server."""
    app = any_database_app
    monkeypatch.setattr("sixfold.web.idempotency._POLL_SECONDS", 0.02)
    guard = IdempotencyGuard(app.database, app.server.scheduler.boot, 60)
    once = IdempotentRequest(app.account.id, b"body", error_response)
    database = UnacknowledgedDatabase(app.database)
    monkeypatch.setattr(guard, "_database", database)
    runs: list[str] = []

    async def work(_idempotency_id: str | None) -> Response:
        runs.append("run")
        return Response(b"done")

    with pytest.raises(errors.StoreFailed):
        await guard.run(keyed_request(), once, work)
    repetition = asyncio.create_task(guard.run(keyed_request(), once, work))
    await database.released.wait()
    assert runs == []
    database.fails = False
    assert (await repetition).body == b"done"
    assert runs == ["run"]


async def test_stored_responses_of_an_account_have_a_quota(any_database_app: AppFixture) -> None:
    """Two servers count together; the operator with a key, and lines of batches, have no quota."""
    app = any_database_app
    guards = [IdempotencyGuard(app.database, boot, 0.2) for boot in ("boot_1", "boot_2")]
    for guard in guards:
        guard.max_reply_bytes = 1000
    runs: list[str] = []

    async def ask(key: str, caller: Principal, scope: Mapping[str, Any] | None = None) -> str:
        async def work(_idempotency_id: str | None) -> Response:
            runs.append(key)
            return Response(b"x" * 600)

        connections.authenticated.set(caller)
        request = keyed_request()
        request.scope.update(scope or {}, headers=[(b"idempotency-key", key.encode())])
        repeatable = IdempotentRequest(caller.replays, b"", error_response)
        guards.reverse()
        response = await guards[0].run(request, repeatable, work)
        return response.headers.get("Idempotent-Replayed", "first")

    own, operator = app.account.owner, app.operator.owner
    other = (await app.database.read(accounts.by_email("ben@example.com"))).owner
    assert [await ask(key, own) for key in ("a", "b", "a")] == ["first", "first", "true"]
    with pytest.raises(errors.TooManyRequests, match="1,000 bytes"):
        await ask("c", own)
    assert await ask("line", own, {BATCH_LINE: True}) == "first"
    assert await ask("c", other) == "first"
    assert [await ask(key, operator) for key in ("a", "b", "c")] == ["first"] * 3
    clock = await app.database.read(one("clock"))
    assert clock is not None
    await app.database.write(idempotency.sweep(clock["now"] + idempotency.LIFE_US + 1))
    assert await ask("c", own) == "first"
    assert runs == ["a", "b", "line", "c", *"abc", "c"]


async def test_a_key_revoked_during_the_wait_gets_no_response(any_database_app: AppFixture) -> None:
    app = any_database_app
    guard = IdempotencyGuard(app.database, "boot_1", 60)
    key = await app.database.write(keys.create(app.account.id))
    principal = await app.database.read(keys.by_id(key.id))
    assert principal is not None
    connections.authenticated.set(principal)
    once = IdempotentRequest(principal.replays, b"body", error_response)
    started, release, waiting = asyncio.Event(), asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    async def work(_idempotency_id: str | None) -> Response:
        runs.append(1)
        started.set()
        await release.wait()
        raise asyncio.CancelledError

    async def second() -> Response:
        waiting.set()
        return await guard.run(keyed_request(), once, work)

    first_task = asyncio.create_task(guard.run(keyed_request(), once, work))
    await started.wait()
    second_task = asyncio.create_task(second())
    await waiting.wait()
    await app.database.write(keys.revoke(key.id))
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await first_task
    with pytest.raises(errors.Unauthenticated):
        await second_task
    assert runs == [1]


async def test_key_can_be_used_again_after_its_expiry(app: AppFixture) -> None:
    first = await app.client.post("/api/ra1", json=body(app), headers=KEY)
    clock = await app.database.read(one("clock"))
    assert clock is not None
    await app.database.write(idempotency.sweep(clock["now"] + idempotency.LIFE_US + 1))
    second = await app.client.post("/api/ra1", json=body(app, size="1360x768"), headers=KEY)
    assert second.json()["size_used"] == "1360x768"
    assert first.json()["image_url"] != second.json()["image_url"]


async def test_repeated_request_after_a_kill_finds_its_prediction(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        scope = idempotency.scope_id(app.account.id, "POST", "/api/ra1", "order 66")
        first = await app.client.post("/api/ra1", json=body(app), headers=KEY)
        # The state after a kill between the capture and the storage of the response.
        await app.database.write(idempotency.forget(scope))
        second_response = await app.client.post("/api/ra1", json=body(app), headers=KEY)
        assert second_response.json()["image_url"] == first.json()["image_url"]
        assert await app.balance() == ("4.96", "0.00")
        assert await prediction_count(app) == 1


async def test_repeated_request_after_a_kill_finds_all_images(any_database_app: AppFixture) -> None:
    app, path = any_database_app, "/v1/images/generations"
    expected = {"model": "ra2", "prompt": "a fox", "n": 3, "size": "256x256"}
    first = await app.client.post(path, json=expected, headers={**app.bearer, **KEY})
    assert (first.status_code, len(first.json()["data"])) == (200, 3)
    # The state that a server leaves if it is killed before it stores its response.
    await app.database.write(many("idempotency_sweep", before=2**61))
    second_response = await app.client.post(path, json=expected, headers={**app.bearer, **KEY})
    assert second_response.json()["data"] == first.json()["data"]
    assert (await prediction_count(app), await app.balance()) == (3, ("4.88", "0.00"))
    # A refund of any of them withdraws the stored response.
    predictions, _ = await app.predictions.page(Tenant(app.account.id), PredictionFilter(), 9, None)
    third_url = second_response.json()["data"][2]["url"]
    last = next(each for each in predictions if each.output and each.output.files[0].name in third_url)
    await app.predictions.refund(last, "a test")
    third = await app.client.post(path, json=expected, headers={**app.bearer, **KEY})
    assert "Idempotent-Replayed" not in third.headers
    assert [row["url"] for row in third.json()["data"]][:2] == [
        row["url"] for row in second_response.json()["data"]
    ][:2]
    assert (await prediction_count(app), await app.balance()) == (4, ("4.88", "0.00"))
    # After a day the key is new for each of them.
    clock = await app.database.read(one("clock"))
    assert clock is not None
    await app.database.write(idempotency.sweep(clock["now"] + idempotency.LIFE_US + 1))
    await app.client.post(path, json=expected, headers={**app.bearer, **KEY})
    assert await prediction_count(app) == 7
    assert await app.faults() == ()


async def test_a_stream_cannot_be_replayed(app: AppFixture) -> None:
    run = {"model": "ra2", "input": {"prompt": "x"}}
    prediction = (await app.client.post("/api/containers/run", json=run, headers=app.bearer)).json()
    response = await app.client.get(prediction["urls"]["events"], headers={**bearer(app.key), **KEY})
    assert response.status_code == 400


async def test_streamed_media_cannot_be_replayed(app: AppFixture) -> None:
    headers = {**app.bearer, **KEY}
    documents: dict[str, dict[str, Any]] = {
        "/v1/images/generations": {"prompt": "a fox", "stream": True},
        "/v1/audio/speech": {"input": "Hello", "stream_format": "sse"},
    }
    responses = [await app.client.post(path, json=each, headers=headers) for path, each in documents.items()]
    fields = {"prompt": "blue", "stream": "true"}
    for path, name in (("/v1/images/edits", "image"), ("/v1/audio/transcriptions", "file")):
        files = {name: ("a.png", png(), "image/png")}
        responses.append(await app.client.post(path, data=fields, files=files, headers=headers))
    assert [response.status_code for response in responses] == [400] * 4
    assert all("omit Idempotency-Key" in response.text for response in responses)
    assert (await prediction_count(app), await app.balance()) == (0, ("5.00", "0.00"))
