"""An account moves from SQLite on a laptop to PostgreSQL, a bucket and two servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.cluster import Database
from tests.e2e.servers import Server, serving
from tests.harness import postgres, s3

LACKING = postgres.LACKING or s3.LACKING
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.s3,
    pytest.mark.skipif(bool(LACKING), reason=LACKING or "all is there"),
]
PIANO = {"model": "piano", "input": {"bars": 4, "seed": 1}}


async def request(server: Server, key: str, path: str, body: Any = None) -> Any:
    """Return the successful response of a server to a request with a key."""
    reply = await server.call("POST" if body else "GET", path, body, Authorization=f"Bearer {key}")
    assert reply.status in {200, 201}, reply.body
    return reply.json


async def test_account_moves_from_a_laptop_to_a_cluster(tmp_path: Path) -> None:
    database, bucket, laptop = Database(tmp_path / "postgres"), s3.server(), tmp_path / "laptop"
    shared = {
        "SIXFOLD_DATABASE_URL": database.url,
        "SIXFOLD_BLOB_URL": f"s3://{bucket.new_bucket()}/store",
        **s3.environment(bucket.endpoint),
    }
    homes, file = [tmp_path / "first", tmp_path / "second"], str(tmp_path / "all.tar")
    page = {"slug": "plans", "title": "Plans", "body": "Begun on the laptop."}
    async with serving(laptop, SIXFOLD_DATABASE_URL="", SIXFOLD_BLOB_URL="") as server:
        key = server.key
        await request(server, key, "/api/pages", page)
        song = await request(server, key, "/api/containers/run", PIANO)
        before = await request(server, key, "/api/account")
        assert (await server.command("backup", file))[0] == 0
        for home in homes:
            home.mkdir()
            (home / "server.key").write_bytes((laptop / "server.key").read_bytes())
        moved = ("restore", file, "--verify", "--json", "--data-dir", str(homes[0]))
        status, text = await server.command(*moved, **shared)
        assert status == 0, text
        assert (json.loads(text)["drift"], json.loads(text)["missing_blobs"]) == (0, 0)
    async with serving(homes[0], **shared) as first, serving(homes[1], **shared) as second:
        for server in (first, second):
            assert (await request(server, key, "/api/account"))["balance_usd"] == before["balance_usd"]
            assert "Begun on the laptop" in (await request(server, key, "/api/pages/plans"))["body"]
            sound = await server.call("GET", urlsplit(song["output"]["url"]).path)
            assert (sound.status, sound.body[:3]) == (200, b"ID3")
        prediction = await request(second, key, "/api/containers/run", {**PIANO, "wait": 60})
        assert prediction["status"] == "succeeded"
        response = (await request(first, key, "/api/containers/predictions"))["predictions"]
        assert [each["id"] for each in response] == [prediction["id"], song["id"]]
        assert (await first.command("ledger", "verify"))[0] == 0
