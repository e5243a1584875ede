"""Predictions: run, list, show, cancel, stream; each with its receipt."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import asgi, bootstrap
from tests.api.app_fixture import AppFixture, bearer, client, running_app, small_models

RUN = "/api/containers/run"
LIST = "/api/containers/predictions"


def run_body(prompt: str = "a fox", **more: Any) -> dict[str, Any]:
    return {"model": "ra2", "input": {"prompt": prompt, "width": 64, "height": 64}, **more}


async def test_run_returns_the_complete_prediction(app: AppFixture) -> None:
    answer = await app.client.post(RUN, json=run_body(), headers=app.bearer)
    body = answer.json()
    assert answer.status_code == 200
    assert body["prediction_id"] == body["id"]
    assert (body["status"], body["model"], body["progress"]) == ("succeeded", "ra2", 1.0)
    assert (body["cost"], body["credits_charged"]) == ("0.04", 4)
    assert body["input"]["prompt"] == "a fox"
    assert set(body["output"]) == {"url", "content_type", "width", "height"}
    assert set(body["metrics"]) == {"queue_ms", "cold_start_ms", "predict_ms"}
    assert body["logs"] == "painting for ra2"
    response = await app.client.get(body["urls"]["get"], headers=app.bearer)
    assert response.json() == body


async def test_receipt_has_six_steps_in_order(app: AppFixture) -> None:
    body = (await app.client.post(RUN, json=run_body(), headers=app.bearer)).json()
    receipt = body["receipt"]
    assert [s["name"] for s in receipt] == ["priced", "held", "queued", "run", "stored", "captured"]
    moments = [step["at"] for step in receipt]
    assert moments == sorted(moments)
    assert [s["usd"] for s in receipt] == ["0.04", "0.04", None, None, None, "0.04"]
    assert all(s["ms"] is None or s["ms"] >= 0 for s in receipt)
    failed = (await app.client.post(RUN, json=run_body("FAIL"), headers=app.bearer)).json()
    assert [s["at"] is None for s in failed["receipt"]] == [False, False, False, False, True, True]
    assert failed["receipt"][5]["usd"] == "0.00"
    assert (failed["status"], failed["error"], failed["cost"]) == ("failed", "The paint has run out", "0.00")
    assert failed["credits_charged"] == 0


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["model"]),
    ({"model": 5, "input": [], "wait": -1}, ["model", "input", "wait"]),
    ({"model": "ra2", "wait": 601}, ["wait"]),
    ({"model": "ra2", "wait": True}, ["wait"]),
    ({"model": "ra2", "input": {"width": 1}}, ["prompt", "width"]),
]


@pytest.mark.parametrize(("body", "names"), REFUSED)
async def test_every_invalid_input_is_in_the_errors(
    app: AppFixture, body: dict[str, Any], names: list[str]
) -> None:
    response = await app.client.post(RUN, json=body, headers=app.bearer)
    document = response.json()
    assert (response.status_code, document["code"]) == (400, "invalid_input")
    assert [item["input"] for item in document["errors"]] == names
    assert all(set(item) == {"input", "message"} for item in document["errors"])


async def test_errors_of_key_model_and_balance(app: AppFixture) -> None:
    keyless = await app.client.post(RUN, content=b"not json")
    unknown = await app.client.post(RUN, json={"model": "nope"}, headers=app.bearer)
    poor = await app.client.post(RUN, json=run_body(), headers=bearer(app.poor))
    messages = [(a.status_code, a.json()["code"]) for a in (keyless, unknown, poor)]
    assert messages == [(401, "invalid_api_key"), (404, "not_found"), (402, "insufficient_credits")]
    assert keyless.headers["WWW-Authenticate"] == "Bearer"


async def test_prediction_is_canceled_and_free(app: AppFixture) -> None:
    for prompt in ("SLOW one", "SLOW two"):
        queued = await app.client.post(RUN, json=run_body(prompt, wait=0), headers=app.bearer)
        assert queued.status_code == 202
        method = "PUT" if "two" in prompt else "POST"
        response = await app.client.request(method, queued.json()["urls"]["cancel"], headers=app.bearer)
        assert response.json()["status"] in {"running", "canceled"}
        async with asyncio.timeout(60):
            while response.json()["status"] != "canceled":
                response = await app.client.delete(queued.json()["urls"]["get"], headers=app.bearer)
    assert await app.balance() == ("5.00", "0.00")


async def test_lists_are_paged_and_filtered(app: AppFixture) -> None:
    for prompt in ("a", "b", "FAIL"):
        await app.client.post(RUN, json=run_body(prompt), headers=app.bearer)
    first = (await app.client.get(LIST, params={"limit": 2}, headers=app.bearer)).json()
    query = {"limit": 2, "cursor": first["next_cursor"]}
    second = (await app.client.get(LIST, params=query, headers=app.bearer)).json()
    prompts = [p["input"]["prompt"] for p in first["predictions"] + second["predictions"]]
    assert prompts == ["FAIL", "b", "a"]
    assert second["next_cursor"] is None
    failed = (await app.client.get(LIST, params={"status": "failed"}, headers=app.bearer)).json()
    assert [p["status"] for p in failed["predictions"]] == ["failed"]
    wrong = ({"status": "canceling"}, {"limit": "0"}, {"limit": "x"}, {"model": "x" * 200}, {"cursor": "x"})
    for query in wrong:
        assert (await app.client.get(LIST, params=query, headers=app.bearer)).status_code == 400


def events(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    """Return the events of a stream: id, name, data."""
    results = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        results.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return results


async def test_event_stream_reports_a_prediction_to_its_end(app: AppFixture) -> None:
    queued = (await app.client.post(RUN, json=run_body("LATE", wait=0), headers=app.bearer)).json()
    response = await app.client.get(queued["urls"]["events"], headers=app.bearer)
    assert response.headers["Content-Type"].startswith("text/event-stream")
    stream_events = events(response.text)
    numbers = [number for number, _, _ in stream_events]
    assert numbers == sorted(set(numbers))
    assert (stream_events[0][1], stream_events[0][2]["status"]) == ("status", "queued")
    assert isinstance(stream_events[0][2]["queue_position"], int)
    assert stream_events[-1][2]["status"] == "succeeded"
    assert {name for _, name, _ in stream_events} == {"status", "progress", "log"}


async def test_resumed_stream_sends_missed_events_once(app: AppFixture) -> None:
    queued = (await app.client.post(RUN, json=run_body("LATE", wait=0), headers=app.bearer)).json()
    url = queued["urls"]["events"]
    full_events = events((await app.client.get(url, headers=app.bearer)).text)
    third = full_events[2][0]
    rest = await app.client.get(url, headers={**app.bearer, "Last-Event-ID": str(third)})
    assert events(rest.text) == full_events[3:]
    last = {**app.bearer, "Last-Event-ID": str(full_events[-1][0])}
    assert (await app.client.get(url, headers=last)).text == ": nothing more\n\n"


async def test_event_ids_continue_after_a_restart(tmp_path: Path) -> None:
    async with running_app(tmp_path) as before:
        body = (await before.client.post(RUN, json=run_body(), headers=before.bearer)).json()
        url = body["urls"]["events"]
        stream_events = events((await before.client.get(url, headers=before.bearer)).text)
        header, settings = before.bearer, before.settings
    application = bootstrap.build(settings, small_models())
    async with bootstrap.running(application), client(asgi.create_app(application)) as visitor:
        header = {**header, "Last-Event-ID": str(stream_events[-2][0])}
        ((number, name, data),) = events((await visitor.get(url, headers=header)).text)
    assert number > stream_events[-2][0]
    assert (name, data["status"], data["output"]) == ("status", "succeeded", body["output"])


async def test_ended_prediction_has_one_final_event(app: AppFixture) -> None:
    queued = (await app.client.post(RUN, json=run_body("LATE", wait=0), headers=app.bearer)).json()
    url = queued["urls"]["events"]
    full_events = events((await app.client.get(url, headers=app.bearer)).text)
    for _ in range(2):
        await app.client.delete(queued["urls"]["get"], headers=app.bearer)
    second_events = events((await app.client.get(url, headers=app.bearer)).text)
    assert [event[:2] for event in second_events] == [event[:2] for event in full_events]
    ends = [data["status"] for _, name, data in second_events if name == "status" and data["completed_at"]]
    assert ends == ["succeeded"]


async def test_stream_resumed_after_the_end_is_empty_after_restart(tmp_path: Path) -> None:
    async with running_app(tmp_path) as before:
        body = (await before.client.post(RUN, json=run_body(), headers=before.bearer)).json()
        url = body["urls"]["events"]
        stream_events = events((await before.client.get(url, headers=before.bearer)).text)
        key, settings = before.bearer, before.settings
    for _ in range(2):
        application = bootstrap.build(settings, small_models())
        async with bootstrap.running(application), client(asgi.create_app(application)) as visitor:
            ((number, name, data),) = events((await visitor.get(url, headers=key)).text)
            assert (name, data["status"]) == ("status", "succeeded")
            for last in (stream_events[-1][0], number):
                behind = {**key, "Last-Event-ID": str(last)}
                assert (await visitor.get(url, headers=behind)).text == ": nothing more\n\n"


async def test_last_event_id_above_all_events_still_gets_the_end(app: AppFixture) -> None:
    queued = (await app.client.post(RUN, json=run_body("LATE", wait=0), headers=app.bearer)).json()
    ahead = {**app.bearer, "Last-Event-ID": "99999999998"}
    stream_events = events((await app.client.get(queued["urls"]["events"], headers=ahead)).text)
    assert [(number, data["status"]) for number, _, data in stream_events] == [(99999999999, "succeeded")]
