"""The guide "an agent's day": its script runs, and prints what the guide shows."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sixfold import settings
from tests.api.app_fixture import running_app
from tests.harness import processes
from tests.mcp.loopback import serve

GUIDE = Path(__file__).parents[2] / "docs" / "howto"


async def test_agent_and_user_edits_of_one_page_are_both_kept(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, serve(app.asgi) as origin:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            str(GUIDE / "agents_day.py"),
            origin,
            env={**settings.worker_environment(), "SIXFOLD_API_KEY": app.key, "PYTHONWARNINGS": "ignore"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        text, wrong = await processes.read_output(child)
    assert child.returncode == 0, wrong.decode()
    assert text.decode() == (GUIDE / "agents_day.txt").read_text("utf-8")
