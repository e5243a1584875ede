"""Prompts are found by the ids of their clients, also those that an earlier version stored."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import one
from sixfold.core.workflows.comfyui import prompt_queue
from sixfold.core.workflows.workflows import PROMPT
from sixfold.store.postgres import connection as connections
from sixfold.store.sqlite import database as sqlite
from tests.harness import backends, databases
from tests.harness.pipeline import Options, running_pipeline

_PREDICTION = """INSERT INTO prediction (id, account_id, request_id, face, model, engine, quality,
    output_kind, inputs, task, fingerprint, origin_id, state, price, credits, created_at, completed_at)
VALUES ('{id}', '{account}', 'req_1', 'workflows', '{model}', 'e', 'full', 'json', '{{}}', '{task}', {blob},
    '{id}', 'succeeded', 0, 0, 1, 2)"""
_TRAINED = """INSERT INTO own_model (account_id, name, version, kind, document, created_at)
VALUES ('{account}', 'custom:cat', 1, 'custom', '{{"training": "pred_7", "models": {{}}}}', 1)"""


def prompt(account: str, prediction_id: str, inputs: dict[str, str]) -> str:
    """Return the insertion of a prompt as the version before stored it."""
    task = json.dumps({"inputs": inputs, "files": {}})
    return _PREDICTION.format(id=prediction_id, account=account, model=PROMPT, task=task, blob="{blob}")


async def run(folder: Path, *statements: str, schema: int | None = None) -> None:
    """Migrate a database to a schema and run statements on it."""
    if not (url := backends.database_url(folder)):
        with contextlib.closing(sqlite3.connect(folder / databases.FILE, isolation_level=None)) as connection:
            sqlite.migrate(connection, schema)
            for statement in statements:
                connection.execute(statement.replace("{blob}", "X'00'"))
        return
    served = await connections.connect(url)
    try:
        await connections.migrate(served, schema)
        for statement in statements:
            await served.execute(statement.replace("{blob}", "'\\x00'::bytea"))
    finally:
        await connections.close(served)


async def test_upgrade_adds_the_ids_of_prompts_and_trainings(either: Path) -> None:
    async with running_pipeline(either, Options(start=False)) as pipeline:
        account = pipeline.payer.id
    await run(
        either,
        prompt(account, "pred_1", {"prompt_id": "mine"}),
        prompt(account, "pred_2", {}),
        _TRAINED.format(account=account),
        schema=95,
    )
    # The version before may still run when a newer one has migrated.
    await run(either, prompt(account, "pred_3", {"prompt_id": "late"}))
    tenant = Tenant(account)
    async with running_pipeline(either, Options(start=False)) as pipeline:
        database = pipeline.database
        for prompt_id, prediction_id in (("mine", "pred_1"), ("pred_2", "pred_2"), ("late", "pred_3")):
            found = await database.read(prompt_queue.find(tenant, prompt_id))
            assert found is not None
            assert found.id == prediction_id
        named = await database.read(prompt_queue.named(tenant, ["mine", "late", "else"]))
        assert sorted(named) == ["pred_1", "pred_3"]
        ended = await database.read(prompt_queue.list_ended(tenant, 10))
        assert [row["id"] for row in ended] == ["pred_3", "pred_2", "pred_1"]
        model = await database.read(one("training_model", account_id=account, id="pred_7"))
        assert model is not None
        assert model["name"] == "custom:cat"


async def test_a_forgotten_prompt_is_not_found(either: Path) -> None:
    async with running_pipeline(either, Options(start=False)) as pipeline:
        account = pipeline.payer.id
    await run(either, *(prompt(account, f"pred_{n}", {"prompt_id": f"p{n}"}) for n in (1, 2, 3)))
    tenant = Tenant(account)
    async with running_pipeline(either, Options(start=False)) as pipeline:
        await pipeline.database.write(prompt_queue.forget(tenant, ["pred_2"], everything=False))
        assert await pipeline.database.read(prompt_queue.find(tenant, "p2")) is None
        await pipeline.database.write(prompt_queue.forget(tenant, [], everything=True))
        assert await pipeline.database.read(prompt_queue.find(tenant, "p3")) is None
