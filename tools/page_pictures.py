"""Remake the pictures of the pages in the docs, in a real browser: `python -m tools.page_pictures`."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app
from tests.api.browser import CHROMIUM, Look, browser, tab
from tests.mcp.loopback import served

PICTURES = Path("docs/pictures")
WIDTH, HEIGHT = 1100, 760
RUN = "/api/containers/run"
Doing = Callable[[Any], Awaitable[None]]


async def _nothing(_page: Any) -> None:
    await asyncio.sleep(0.5)  # pictures that are loaded lazily


async def _lit(page: Any) -> None:
    """A workflow in the middle of its run."""
    await page.fill("#in-prompt", "an old windmill among tulips")
    await page.click("#run .doing .primary")
    await page.wait_for_selector(".made[data-status=succeeded]")
    await page.wait_for_selector(".node.finished[data-node='7']")
    await page.evaluate("scrollTo(0, 0)")


async def _lineage(page: Any) -> None:
    await page.locator("#lineage").scroll_into_view_if_needed()
    await page.evaluate("scrollBy(0, document.getElementById('lineage').getBoundingClientRect().top - 40)")
    await asyncio.sleep(0.5)


async def main() -> None:
    """Make a few things, look at the pages, keep what is seen."""
    with tempfile.TemporaryDirectory() as folder:
        async with running_app(Path(folder), app_catalog.models_document()) as app, served(app.asgi) as url:
            middle = await _made(app)
            await look(app, url, middle)


async def _made(app: AppFixture) -> str:
    """A picture, what was made of it, and what was made of that; the id of the one in the middle."""

    async def run(model: str, given: dict[str, Any]) -> dict[str, Any]:
        answer = await app.client.post(RUN, json={"model": model, "input": given}, headers=app.bearer)
        return dict(answer.raise_for_status().json())

    first = await run(
        "fast-image-native", {"prompt": "a red fox in snow", "width": 960, "height": 540, "seed": 3}
    )
    styled = {"source_image_url": first["output"]["url"], "style_prompt": "watercolour"}
    second = await run("style-transfer", styled)
    await run("video-b", {"image_url": second["output"]["url"], "seed": 1})
    await run("vectorizer", {"image": second["output"]["url"]})
    await run("tts-b", {"text": "The fox went home."})
    return str(second["id"])


async def look(app: AppFixture, url: str, middle: str) -> None:
    """The pictures."""
    operator = dataclasses.replace(app, account=app.operator)
    expected: dict[str, tuple[AppFixture, str, Literal["light", "dark"], Doing]] = {
        "page-catalogue.webp": (app, "/catalog", "light", _nothing),
        "page-workflow.webp": (app, "/workflows/stylized-text-to-image", "dark", _lit),
        "page-lineage.webp": (app, f"/predictions/{middle}", "light", _lineage),
        "page-operator.webp": (operator, "/admin", "light", _nothing),
    }
    async with browser() as chromium:
        for name, (who, path, scheme, do) in expected.items():
            async with tab(chromium, who, url, Look(WIDTH, scheme)) as result:
                await result.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
                await result.open(path)
                await do(result.page)
                png = await result.page.screenshot()
            image = Image.open(io.BytesIO(png)).convert("RGB")
            image.save(PICTURES / name, "WEBP", quality=80, method=6)
            print(f"{PICTURES / name}  {(PICTURES / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    if CHROMIUM is None:
        print("There is no Chromium on this machine: its pictures of the pages stay as they are")
    else:
        asyncio.run(main())
