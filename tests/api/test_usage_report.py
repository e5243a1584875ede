"""The usage of an account: requests, tokens and amounts by day, kind, model and key, as JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sixfold.core import money
from sixfold.core.accounts import keys, rights, usage_report
from sixfold.core.accounts.usage_report import UsageReport
from sixfold.core.clock import DAY_US
from sixfold.core.gateway import request_log
from sixfold.core.predictions import queries
from tests.api.app_fixture import bearer
from tests.api.gateway import PRICE, Gateway, running_gateway

USAGE = "/api/account/usage"
COUNTS = ["requests", "input_tokens", "output_tokens", "amount_usd"]
FREE = {"input_per_million_usd": "0", "output_per_million_usd": "0"}


@pytest.fixture
async def gateway(either: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(either, prices={"acme/small": PRICE, "anth/small": FREE}) as result:
        yield result


async def usage(gateway: Gateway, **query: Any) -> list[dict[str, Any]]:
    response = await gateway.app.client.get(USAGE, params=query, headers=gateway.headers)
    assert response.status_code == 200, response.text
    return response.json()["usage"]


async def test_report_is_added_up_in_a_thread(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    await gateway.chat()
    await gateway.settled()
    threads, values = list[int](), usage_report.group_values

    def noting(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return values(*args)

    monkeypatch.setattr(usage_report, "group_values", noting)
    assert await usage(gateway)
    assert threads
    assert threading.get_ident() not in threads


async def test_charges_refunds_and_free_calls_add_up(gateway: Gateway) -> None:
    app = gateway.app
    paid = [(await gateway.chat()).json()["usage"] for _ in range(2)]
    free = (await gateway.chat(model="anth/small")).json()["usage"]
    second = await app.database.write(keys.create(app.account.id))
    bearer = {"Authorization": f"Bearer {second.api_key}"}
    for headers in (app.bearer, bearer, bearer):
        body = {"model": "ra1", "input": {"prompt": "a fox"}}
        run = (await app.client.post("/api/containers/run", json=body, headers=headers)).json()["id"]
    await app.predictions.refund(await app.predictions.get_any(run), "of no use")
    await gateway.settled(3)
    ledger = (await app.client.get("/api/account/ledger", headers=app.bearer)).json()["entries"]
    entries = [entry for entry in ledger if entry["kind"] == "chat"]
    rows = await usage(gateway, by="kind,model,key")
    first = next(row["key"] for row in rows if row["kind"] == "chat")
    assert {(row["kind"], row["model"], row["key"]): [row[name] for name in COUNTS] for row in rows} == {
        ("chat", "acme/small", first): [
            2,
            sum(each["prompt_tokens"] for each in paid),
            sum(each["completion_tokens"] for each in paid),
            money.format_usd(-sum(money.parse_usd(row["amount_usd"]) for row in entries)),
        ],
        ("chat", "anth/small", first): [1, free["prompt_tokens"], free["completion_tokens"], "0.00"],
        ("run", "ra1", first): [1, 0, 0, "0.04"],
        ("run", "ra1", second.id): [2, 0, 0, "0.08"],
        ("refund", "ra1", second.id): [0, 0, 0, "-0.04"],
    }
    (total,) = await usage(gateway, by="day")
    assert total["day"] == datetime.now(UTC).date().isoformat()
    assert total["requests"] == 6


async def test_media_calls_and_refunds_belong_to_their_key_and_model(gateway: Gateway) -> None:
    app = gateway.app
    other = bearer((key := await app.database.write(keys.create(app.account.id))).api_key)
    body: dict[str, Any] = {"model": "acme/small", "input": ["a", "b"]}
    tagged = {**other, "X-Sixfold-Tag": "night"}
    answer = await app.client.post("/v1/embeddings", json=body, headers=tagged)
    assert answer.status_code == 200, answer.text
    chat = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]}
    calls = [
        await app.client.post("/v1/chat/completions", json=chat, headers=tagged),
        await app.client.post("/v1/chat/completions", json=chat, headers=tagged),
    ]
    await gateway.settled(3)
    refunded = calls[0].headers["x-request-id"]
    await app.database.write(request_log.refund(refunded, "no use: really"))
    cost = calls[0].headers["x-sixfold-cost"]
    rows = await usage(gateway, by="kind,model,key,tag")
    spent = {(row["kind"], row["model"]): (row["requests"], row["amount_usd"]) for row in rows}
    assert spent == {
        ("run", "acme/small"): (1, answer.headers["x-sixfold-cost"]),
        ("chat", "acme/small"): (2, money.format_usd(2 * money.parse_usd(cost))),
        ("refund", "acme/small"): (0, f"-{cost}"),
    }
    assert {(row["key"], row["tag"]) for row in rows} == {(key.id, "night")}
    tokens = {row["kind"]: row["input_tokens"] for row in rows}
    assert tokens == {"run": 14, "chat": 20, "refund": 0}


async def test_csv_has_the_same_rows(gateway: Gateway) -> None:
    await gateway.chat()
    await gateway.settled(1)
    response = await gateway.app.client.get(USAGE, params={"format": "csv"}, headers=gateway.headers)
    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert json.dumps(rows) == json.dumps(
        [{name: str(value) for name, value in row.items()} for row in await usage(gateway)]
    )
    assert len(rows) == 1


def test_a_formula_in_a_model_name_stays_text() -> None:
    text = UsageReport(("model",), ({"model": "=1+1"}, {"model": "plain"})).csv()
    assert text.splitlines() == ["model", "'=1+1", "plain"]


@pytest.mark.parametrize("query", ["days=0", "days=367", "days=x", "by=account", "by=day,", "format=xml"])
async def test_invalid_query_is_400_and_named(gateway: Gateway, query: str) -> None:
    response = await gateway.app.client.get(f"{USAGE}?{query}", headers=gateway.headers)
    assert response.status_code == 400
    assert query.partition("=")[0] in response.json()["error"]


async def test_usage_is_hidden_from_other_accounts_and_weaker_keys(gateway: Gateway) -> None:
    await gateway.chat()
    await gateway.settled(1)
    app = gateway.app
    operator = await app.client.get(USAGE, headers={"Authorization": f"Bearer {await app.operator_key()}"})
    assert operator.json()["usage"] == []
    weak = await app.database.write(keys.create(app.account.id, granted=rights.Rights.RUN))
    response = await app.client.get(USAGE, headers={"Authorization": f"Bearer {weak.api_key}"})
    assert response.status_code == 403


async def test_calls_are_reported_by_their_tags(gateway: Gateway) -> None:
    app = gateway.app
    headers = {**app.bearer, "X-Sixfold-Tag": "night"}
    body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]}
    await app.client.post("/v1/chat/completions", json={**body, "user": "ann"}, headers=headers)
    await gateway.chat(user="ann")
    await gateway.chat(user="ann", metadata={"tag": "day"})
    await gateway.chat("say 3 words", "anth/small", user={"odd": 1})
    message = {**body, "max_tokens": 9, "metadata": {"user_id": "ben\u0007"}}
    await app.client.post("/v1/messages", json=message, headers=app.bearer)
    await app.client.post(
        "/v1/responses", json={"model": "acme/small", "input": "hi", "user": "ann"}, headers=app.bearer
    )
    await gateway.settled(6)
    rows = await usage(gateway, by="tag")
    assert {row["tag"]: row["requests"] for row in rows} == {"": 1, "ann": 2, "ben": 1, "day": 1, "night": 1}
    assert "tag" not in (await usage(gateway))[0]


async def test_only_operators_see_what_the_provider_of_a_call_charged(gateway: Gateway) -> None:
    """OpenRouter states the cost in `usage.cost`; the cost of a call without it is unknown."""
    app = gateway.app
    gateway.acme.report = lambda counted: {**counted, "cost": 0.0021}
    await gateway.chat()
    gateway.acme.report = lambda counted: counted
    await gateway.chat()
    operator = bearer(await app.operator_key())
    body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]}
    gateway.acme.report = lambda counted: {**counted, "cost": 0.003}
    await app.client.post("/v1/chat/completions", json=body, headers=operator)
    await gateway.settled(2)
    own = (await app.client.get(USAGE, params={"by": "model"}, headers=operator)).json()["usage"]
    assert [row["provider_cost_usd"] for row in own] == ["0.003"]
    text = (await app.client.get(USAGE, params={"by": "model", "format": "csv"}, headers=operator)).text
    assert text.splitlines()[0] == "model,requests,input_tokens,output_tokens,amount_usd,provider_cost_usd"
    assert all("provider_cost_usd" not in row for row in await usage(gateway))
    report = await app.database.read(usage_report.report(app.account.id, 1, ("model",), with_costs=True))
    assert report.rows[0]["provider_cost_usd"] == "0.0021"
    (costs,) = await app.database.read(queries.by_engine(DAY_US))
    earned = sum(money.parse_usd(call["cost_usd"]) for call in await gateway.calls())
    assert (costs.engine, costs.runs, costs.spent, costs.runs_with_cost) == ("acme/small", 3, 5100, 2)
    assert costs.earned >= earned
    slots = (await app.client.get("/api/operator/figures", headers=operator)).json()["slots"]
    assert sum(money.parse_usd(slot["provider_cost_usd"]) for slot in slots) == 5100
