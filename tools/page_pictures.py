"""Generate the screenshots of pages for the documentation: `python -m tools.page_pictures`."""

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
Preparation = Callable[[Any], Awaitable[None]]


async def _wait_for_images(_page: Any) -> None:
    await asyncio.sleep(0.5)  # images are loaded lazily


async def _run_workflow(page: Any) -> None:
    """Run the workflow, and scroll to its top."""
    await page.fill("#in-prompt", "an old windmill among tulips")
    await page.click("#run button.primary")
    await page.wait_for_selector(".prediction[data-status=succeeded]")
    await page.wait_for_selector(".node.finished[data-node='7']")
    await page.evaluate("scrollTo(0, 0)")


async def _scroll_to_lineage(page: Any) -> None:
    await page.locator("#lineage").scroll_into_view_if_needed()
    await page.evaluate("scrollBy(0, document.getElementById('lineage').getBoundingClientRect().top - 40)")
    await asyncio.sleep(0.5)


async def main() -> None:
    """Create example predictions and take the screenshots."""
    with tempfile.TemporaryDirectory() as folder:
        async with running_app(Path(folder), app_catalog.models_document()) as app, served(app.asgi) as url:
            middle = await _create_lineage(app)
            await take_screenshots(app, url, middle)


async def _create_lineage(app: AppFixture) -> str:
    """Run a chain of predictions, and return the id of the middle one, which has inputs and outputs."""

    async def run(model: str, inputs: dict[str, Any]) -> dict[str, Any]:
        response = await app.client.post(RUN, json={"model": model, "input": inputs}, headers=app.bearer)
        return dict(response.raise_for_status().json())

    first = await run(
        "fast-image-native", {"prompt": "a red fox in snow", "width": 960, "height": 540, "seed": 3}
    )
    styled = {"source_image_url": first["output"]["url"], "style_prompt": "watercolour"}
    second = await run("style-transfer", styled)
    await run("video-b", {"image_url": second["output"]["url"], "seed": 1})
    await run("vectorizer", {"image": second["output"]["url"]})
    await run("tts-b", {"text": "The fox went home."})
    return str(second["id"])


async def take_screenshots(app: AppFixture, url: str, middle: str) -> None:
    """Write the screenshots."""
    operator = dataclasses.replace(app, account=app.operator)
    screenshots: dict[str, tuple[AppFixture, str, Literal["light", "dark"], Preparation]] = {
        "page-catalogue.webp": (app, "/catalog", "light", _wait_for_images),
        "page-workflow.webp": (app, "/workflows/stylized-text-to-image", "dark", _run_workflow),
        "page-lineage.webp": (app, f"/predictions/{middle}", "light", _scroll_to_lineage),
        "page-operator.webp": (operator, "/admin", "light", _wait_for_images),
        "page-engines.webp": (operator, "/admin/engines", "light", _wait_for_images),
    }
    async with browser() as chromium:
        for name, (viewer, path, scheme, prepare) in screenshots.items():
            async with tab(chromium, viewer, url, Look(WIDTH, scheme)) as session:
                await session.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
                await session.open(path)
                await prepare(session.page)
                png = await session.page.screenshot()
            image = Image.open(io.BytesIO(png)).convert("RGB")
            image.save(PICTURES / name, "WEBP", quality=80, method=6)
            print(f"{PICTURES / name}  {(PICTURES / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    if CHROMIUM is None:
        print("Chromium not found: the screenshots of the pages were not updated")
    else:
        asyncio.run(main())
