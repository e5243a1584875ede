"""The guide's agent with fifty cents: its script prints what is shown, and the ledger agrees."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sixfold import settings
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import running_app
from tests.api.media_samples import DecodedVideo
from tests.harness import processes
from tests.mcp.loopback import serve

pytestmark = pytest.mark.nightly

GUIDE = Path(__file__).parents[2] / "docs" / "howto"
PROJECT_PAGE = {
    "title": "The lighthouse film",
    "body": "Ann wants a short film of one day at the lighthouse: dawn, a sailboat, fog, stars.\n"
    "The sea is heard, and a calm voice. It may cost fifty cents.",
}


async def test_agent_makes_a_video_and_stops_at_fifty_cents(tmp_path: Path, pictures: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app, serve(app.asgi) as origin:
        await app.client.put("/api/pages/projects/lighthouse-film", json=PROJECT_PAGE, headers=app.bearer)
        key = await app.limited_key(KeyLimits(budget_day=500_000))
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            str(GUIDE / "fifty_cents.py"),
            origin,
            env={**settings.worker_environment(), "SIXFOLD_API_KEY": key, "PYTHONWARNINGS": "ignore"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        text, wrong = await processes.read_output(child)
        assert child.returncode == 0, wrong.decode()
        assert await app.balance() == ("4.516", "0.00")
        assert await app.faults() == ()
        note = await app.client.get("/api/pages/notebook/lighthouse-film", headers=app.bearer)
        [address] = re.findall(r"\[film\]\((.+?)\)", note.json()["body"])
        video = DecodedVideo((await app.client.get(address)).content)
    assert text.decode() == (GUIDE / "fifty_cents.txt").read_text("utf-8")
    assert len(video.frames) == 20 * 12
    assert min(video.loudness(second, second + 1) for second in range(1, 19)) > 0.001
    strip = Image.fromarray(np.hstack([video.at(second) for second in (2.5, 7.5, 12.5, 17.5)]))
    strip.resize((1200, 200), Image.Resampling.LANCZOS).save(pictures / "fifty-cents.webp", quality=80)
