"""A server restored from a backup of a running server continues its work."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sixfold.store import factory
from tests.e2e.servers import serving
from tests.harness import backends, postgres

pytestmark = pytest.mark.nightly

ORDERS = 12


@pytest.mark.slow
async def test_restored_running_job_finishes_and_is_charged_once(tmp_path: Path) -> None:
    target = tmp_path / "target"
    path = str(tmp_path / "all.tar")
    async with serving(tmp_path / "source", SIXFOLD_WORKERS="1") as server:
        key = server.key
        order = {"api_key": key, "prompt": "a hill", "response_mode": "polling"}
        replies = [await server.call("POST", "/api/anime", {**order, "seed": seed}) for seed in range(ORDERS)]
        status, text = await server.command("backup", path, "--json")
        assert status == 0, text
        assert json.loads(text)["tables"]["prediction"] == ORDERS
        assert json.loads(text)["missing_blobs"] == 0
        await server.kill()
        command = ("restore", path, "--verify", "--json", "--data-dir", str(target))
        environ = backends.environ(target)
        if url := environ.get("SIXFOLD_DATABASE_URL"):
            await asyncio.to_thread(_empty, url, target)
        status, text = await server.command(*command, **environ)
        assert status == 0, text
        assert json.loads(text)["drift"] == 0
    async with serving(target) as restored:
        assert await restored.command("ledger", "verify") == (0, "  The ledger is consistent\n")
        ends = [await restored.final_status(reply.json["status_url"]) for reply in replies]
        assert ends == ["completed"] * ORDERS
        answer = await restored.call("GET", "/api/account", Authorization=f"Bearer {key}")
        assert (answer.json["balance_usd"], answer.json["held_usd"]) == ("9.916", "0.00")
        assert await restored.command("ledger", "verify") == (0, "  The ledger is consistent\n")


def _empty(url: str, folder: Path) -> None:
    """A restore wants a database with nothing in it, and a test's has the schema already."""
    factory.open_admin(url, folder).migrate(0)
    postgres.forget_schema(url)
