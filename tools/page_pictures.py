"""Generate the screenshots of pages for the documentation: `python -m tools.page_pictures`.

The argument `tour` generates one image of ten pages instead.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import accounts
from tests.api.app_fixture import AppFixture, running_app
from tests.api.browser import CHROMIUM, TabOptions, browser, tab
from tests.api.gateway import running_gateway
from tests.fakes.chat_servers import model_server
from tests.mcp.loopback import serve

PICTURES = Path("docs/pictures")
WIDTH, HEIGHT = 1100, 760
RUN = "/api/containers/run"
Preparation = Callable[[Any], Awaitable[None]]


# Whether the images in the window are loaded; those below it are loaded when they come near it.
LOADED = """() => [...document.images].every((each) =>
  !each.checkVisibility() || each.getBoundingClientRect().top > innerHeight || each.naturalWidth > 0)"""


async def _wait_for_images(page: Any) -> None:
    await page.wait_for_load_state("load")
    await page.wait_for_function(LOADED)
    await asyncio.sleep(0.5)  # charts and graphs are drawn


async def _run_workflow(page: Any) -> None:
    """Run the workflow, and scroll to its top."""
    await page.fill("#in-prompt", "a windmill among sunflowers")
    await page.click("#run button.primary")
    await page.wait_for_selector(".prediction[data-status=succeeded]")
    await page.wait_for_selector(".node[data-node='7'] .made")
    await page.evaluate("scrollTo(0, 0)")
    await _wait_for_images(page)


async def _scroll_to_lineage(page: Any) -> None:
    await page.locator("#lineage").scroll_into_view_if_needed()
    await page.evaluate("scrollBy(0, document.getElementById('lineage').getBoundingClientRect().top - 40)")
    await _wait_for_images(page)


async def _run_model(page: Any) -> None:
    await page.fill("#in-prompt", "a hot-air balloon over mountains at sunrise")
    await page.click("#run button.primary")
    await page.wait_for_selector(".prediction[data-status=succeeded] img")
    await _wait_for_images(page)


async def _ask(page: Any) -> None:
    """Draw an image in a chat, and ask its model."""
    await page.fill("#text", "draw a vegetable garden behind a cottage")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".content img")
    await page.fill("#text", "How large is a bed, and what grows in it?")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".content table")
    await page.wait_for_selector(".cost")
    await _wait_for_images(page)


async def _walk(page: Any) -> None:
    """Start a live session and walk."""
    await page.click("main button.primary:visible")
    await page.wait_for_selector("canvas")
    await asyncio.sleep(6)


# For each page: whether it requires the operator, its path, and a function to call before the screenshot.
TOUR: tuple[tuple[bool, str, Preparation], ...] = (
    (False, "/", _wait_for_images),
    (False, "/catalog", _wait_for_images),
    (False, "/catalog/ra1", _run_model),
    (False, "/chat", _ask),
    (False, "/workflows/stylized-text-to-image", _run_workflow),
    (False, "/predictions", _wait_for_images),
    (False, "/memory/places/lighthouse", _wait_for_images),
    (False, "/live/world-model", _walk),
    (False, "/account/usage", _wait_for_images),
    (True, "/admin", _wait_for_images),
)
DARK = (4, 9)
NOTES = {
    "people/ann": "# Ann\n\nAnn keeps the [[places/lighthouse]] and works at [[places/harbour]]. #team\n",
    "people/bob": "# Bob\n\nBob repairs boats with [[people/ann]]. #team\n",
    "places/harbour": "# Harbour Office\n\nOpen on weekdays. [[people/bob]] has the keys.\n",
    "places/lighthouse": "# Lighthouse\n\nThe lighthouse stands on the north cape since 1893. "
    "[[people/ann]] keeps it.\n\n> [!warning] Wet stairs\n> After rain, ==the east stairs are closed==.\n\n"
    "The lamp is visible from $d = \\sqrt{2 h R}$, with the height $h$ and the radius $R$ of the earth.\n\n"
    "- [x] oil the lamp\n- [ ] paint the door\n\n"
    "| Part | Made |\n|---|---|\n| Lens | 1911 |\n| Bell | 1924 |\n",
}
ANSWER = """A bed of width $w$ and length $l$ has the area $A = w l$.

```python
def area(width: float, length: float) -> float:
    return width * length
```

| Plant | Depth | Weeks |
|---|---:|---:|
| Carrot | 1 cm | 16 |
| Bean | 3 cm | 10 |
"""
TILE, GAP = (720, 450), 12
# The model server of the chat, and the price of its model.
SERVER = "gpu-box"
PRICE = {"input_per_million_usd": "0.10", "output_per_million_usd": "0.40"}


async def main() -> None:
    """Create example predictions and take the screenshots."""
    with tempfile.TemporaryDirectory() as folder:
        async with running_app(Path(folder), app_catalog.models_document()) as app, serve(app.asgi) as url:
            middle = await _create_lineage(app)
            await take_screenshots(app, url, middle)


async def _create_lineage(app: AppFixture) -> str:
    """Run a chain of predictions, and return the id of a prediction in the middle."""

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
    operator = dataclasses.replace(app, account=app.operator)
    screenshots: dict[str, tuple[AppFixture, str, Literal["light", "dark"], Preparation]] = {
        "page-catalog.webp": (app, "/catalog", "light", _wait_for_images),
        "page-workflow.webp": (app, "/workflows/stylized-text-to-image", "dark", _run_workflow),
        "page-lineage.webp": (app, f"/predictions/{middle}", "light", _scroll_to_lineage),
        "page-operator.webp": (operator, "/admin", "light", _wait_for_images),
        "page-engines.webp": (operator, "/admin/engines", "light", _wait_for_images),
    }
    async with browser() as chromium:
        for name, (viewer, path, scheme, prepare) in screenshots.items():
            async with tab(chromium, viewer, url, TabOptions(WIDTH, scheme)) as session:
                await session.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
                await session.open(path)
                await prepare(session.page)
                png = await session.page.screenshot()
            image = Image.open(io.BytesIO(png)).convert("RGB")
            image.save(PICTURES / name, "WEBP", quality=80, method=6)
            print(f"{PICTURES / name}  {(PICTURES / name).stat().st_size:,} bytes")


async def take_tour() -> None:
    """Write ten pages, two in each row, as one image."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            model_server() as server,
            running_gateway(
                Path(folder),
                models=app_catalog.models_document(),
                upstreams={SERVER: {"kind": "openai", "base_url": server.url, "context": 32_768}},
                aliases={},
                prices={f"{SERVER}/small": PRICE},
            ) as gateway,
            serve(gateway.app.asgi) as url,
            browser() as chromium,
        ):
            await _create_lineage(gateway.app)
            for slug, body in NOTES.items():
                page = {"slug": slug, "body": body}
                await gateway.app.client.post("/api/pages", json=page, headers=gateway.app.bearer)
            server.answer = ANSWER
            # The start page asks users without a password to set one.
            password = accounts.set_password_hash(gateway.app.account.id, "unused")
            await gateway.app.database.write(password)
            await _write_tour(chromium, gateway.app, url)


async def _write_tour(chromium: Any, app: AppFixture, url: str) -> None:
    operator = dataclasses.replace(app, account=app.operator)
    sheet = Image.new("RGB", (2 * TILE[0] + GAP, 5 * TILE[1] + 4 * GAP), "#d8d4cb")
    for at, (is_operator, path, prepare) in enumerate(TOUR):
        viewer = operator if is_operator else app
        async with tab(chromium, viewer, url, TabOptions(1440, "dark" if at in DARK else "light")) as session:
            await session.open(path)
            await prepare(session.page)
            png = await session.page.screenshot()
        tile = Image.open(io.BytesIO(png)).convert("RGB").resize(TILE, Image.Resampling.LANCZOS)
        sheet.paste(tile, (at % 2 * (TILE[0] + GAP), at // 2 * (TILE[1] + GAP)))
    sheet.save(PICTURES / "pages.webp", "WEBP", quality=52, method=6)
    print(f"{PICTURES / 'pages.webp'}  {(PICTURES / 'pages.webp').stat().st_size:,} bytes")


if __name__ == "__main__":
    if CHROMIUM is None:
        print("Chromium not found: the screenshots of the pages were not updated")
    else:
        asyncio.run(take_tour() if sys.argv[1:] == ["tour"] else main())
