"""Generate the screenshots of the memory for the documentation: `python -m tools.memory_pictures`."""

from __future__ import annotations

import asyncio
import io
import tempfile
from pathlib import Path
from typing import Literal

from PIL import Image

from tests.api.app_fixture import AppFixture, running_app
from tests.api.browser import CHROMIUM, TabOptions, browser, tab
from tests.mcp.loopback import serve

PICTURES = Path("docs/pictures")
WIDTH = 1100
PAGES = {
    "companies/acme": "---\ntype: company\ntags: [client]\n---\n# Acme\nMakes airships. Ben founded Acme.\n",
    "people/ben": "---\ntype: person\ntags: [team]\n---\n# Ben Jones\nBen founded Acme in 2019.\n",
    "projects/zeppelin": (
        "---\ntype: project\ntags: [airships]\n---\n# Zeppelin\nA quiet airship.\n\n"
        "- built_by [[companies/acme]]\n- filled_with [[decisions/helium]]\n"
    ),
    "decisions/helium": (
        "---\ntype: decision\n---\n# We fly with helium\n[[people/ann]] decided; see [[projects/zeppelin]].\n"
    ),
    "meetings/2026-11-02": (
        "---\ntype: meeting\n---\n# Friedrichshafen\n[[people/ann]] and [[people/ben]]: quiet engines.\n"
    ),
    "people/ann": (
        "---\ntype: person\ntags: [team, pilots]\n---\n# Ann Smith\n"
        "Ann works at Acme and met Ben Jones on 2026-11-02. She writes the [[weekly report]].\n\n"
        "- leads [[projects/zeppelin]]\n\n"
        "## What she said\n\n> Quiet engines are not a feature. They are the point.\n\n"
        "| Flight | Hours |\n|:--|--:|\n| Test one | 4.5 |\n| Test two | 12.25 |\n\n"
        "## To do\n\n- [x] Order helium\n- [ ] Weigh the crew, as $F = \\rho V g$ #pilots\n\n"
        "## What happened\n\n- **2026-11-02** — Met Ben Jones\n- **2026-10-12** — Took over the Zeppelin\n"
    ),
}


async def main() -> None:
    """Create the example pages and take the screenshots."""
    with tempfile.TemporaryDirectory() as folder:
        async with running_app(Path(folder)) as app, serve(app.asgi) as url:
            headers = {**app.bearer, "Content-Type": "text/markdown"}
            for slug, text in PAGES.items():
                response = await app.client.put(f"/api/pages/{slug}", content=text.encode(), headers=headers)
                response.raise_for_status()
            await take_screenshots(app, url)


async def take_screenshots(app: AppFixture, url: str) -> None:
    """Write the screenshots of a search and of a page."""
    screenshots: dict[str, tuple[str, Literal["light", "dark"]]] = {
        "memory-search.webp": ("/memory?q=who works at Acme", "light"),
        "memory-page.webp": ("/memory/people/ann", "dark"),
    }
    async with browser() as chromium:
        for name, (path, scheme) in screenshots.items():
            async with tab(chromium, app, url, TabOptions(WIDTH, scheme)) as session:
                await session.open("/memory?q=engines")  # the first search reads the index
                await session.open(path)
                if "search" in name:
                    await session.page.click(".why summary")
                png = await session.page.screenshot(full_page="page" in name)
            image = Image.open(io.BytesIO(png)).convert("RGB")
            image.save(PICTURES / name, "WEBP", quality=82, method=6)
            print(f"{PICTURES / name}  {(PICTURES / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    if CHROMIUM is None:
        print("Chromium not found: the screenshots of the memory were not updated")
    else:
        asyncio.run(main())
