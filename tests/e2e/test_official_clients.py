"""Both official clients with all their methods: the guide's script prints what the guide shows."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from sixfold import settings
from sixfold.app import catalog as app_catalog
from tests.api.gateway import listening, running_gateway
from tests.harness import processes
from tests.harness.backends import FILES

pytestmark = pytest.mark.nightly

GUIDE = Path(__file__).parents[2] / "docs" / "howto"


async def test_both_official_clients_run_all_their_methods(tmp_path: Path) -> None:
    models = app_catalog.models_document()
    async with (
        running_gateway(tmp_path, settings=FILES, models=models) as gateway,
        listening(gateway.app.asgi) as origin,
    ):
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            str(GUIDE / "official_clients.py"),
            origin,
            "acme/small",
            env={
                **settings.worker_environment(),
                "SIXFOLD_API_KEY": gateway.app.key,
                "PYTHONWARNINGS": "ignore",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        text, wrong = await processes.read_output(child)
        pending = await gateway.pending()
    assert child.returncode == 0, wrong.decode()
    assert text.decode() == (GUIDE / "official_clients.txt").read_text("utf-8")
    assert pending == 0
