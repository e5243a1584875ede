"""Count accessibility violations, layout shifts and bytes of the pages at three widths, in both schemes.

.venv/bin/python -m bench accessibility. The rules are those of axe-core for WCAG 2.1 A and AA, and its best
practices.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import tempfile
from pathlib import Path
from typing import Any, Literal

from bench.reporting import Row
from sixfold.app import catalog as app_catalog
from tests.api import browser, page_checks
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.gateway import running_gateway
from tests.api.test_shares import share
from tests.mcp.loopback import serve

# Parts of paths that are the ids of rows, which the table shows in capitals.
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
TITLE = "Accessibility of the pages"
_WIDTHS = (1440, 834, 390)
_SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_NOTE = {"slug": "notes/one", "body": "# One\n\nA [[notes/two]] link.\n\n- [ ] task\n"}
_PAGES = (
    "/",
    "/catalog",
    "/catalog/ra1",
    "/catalog/remove-background",
    "/chat",
    "/workflows",
    "/workflows/stylized-text-to-image",
    "/predictions",
    "/predictions/{run}",
    "/s/{share}",
    "/memory",
    "/memory/notes/one",
    "/memory/notes/one/~edit",
    "/live/world-model",
    "/gallery",
    "/account",
    "/account/usage",
    "/account/keys",
    "/account/billing",
    "/account/security",
    "/account/data",
    "/account/members",
    "/account/shares",
    "/find?q=image",
    "/docs/howto/pages",
)
_OPERATOR_PAGES = (
    "/admin",
    "/admin/requests",
    "/admin/requests/{run}",
    "/admin/people",
    "/admin/people/{account}",
    "/admin/people/{account}/usage",
    "/admin/usage",
    "/admin/engines",
    "/admin/providers",
    "/admin/models",
    "/admin/prices",
    "/admin/tools",
    "/admin/content",
    "/admin/alerts",
    "/admin/backups",
    "/admin/audit",
)
_SIZE = "performance.getEntries().reduce((sum, entry) => sum + (entry.encodedBodySize || 0), 0) / 1000"


async def _check(tab: browser.Tab, path: str) -> tuple[int, int, float, float]:
    """Return the violations and passed rules of a page, the sum of its layout shifts, and its kilobytes."""
    await tab.open(path)
    await tab.page.wait_for_load_state("load")
    shift = float(await tab.page.evaluate(page_checks.SHIFT))
    size = float(await tab.page.evaluate(_SIZE))
    response = (await page_checks.axe.Axe().run(tab.page, options=page_checks.RULES)).response
    return len(response["violations"]), len(response["passes"]), shift, size


async def _rows(
    chromium: Any, app: AppFixture, url: str, paths: tuple[str, ...], names: dict[str, str]
) -> list[Row]:
    found: dict[str, list[tuple[int, int, float, float]]] = {path: [] for path in paths}
    for width in _WIDTHS:
        for scheme in _SCHEMES:
            async with browser.tab(chromium, app, url, TabOptions(width, scheme)) as tab:
                for path in paths:
                    found[path].append(await _check(tab, path.format_map(names)))
    return [
        Row(
            _PLACEHOLDER.sub(lambda name: name[1].upper(), path),
            sum(violations for violations, *_ in checks),
            "violations",
            note=f"{min(passed for _, passed, *_ in checks)} rules passed; "
            f"layout shift at most {max(shift for _, _, shift, _ in checks):.3f}; "
            f"{max(size for *_, size in checks):.0f} KB",
        )
        for path, checks in found.items()
    ]


async def _measure(folder: Path) -> list[Row]:
    models = app_catalog.models_document()
    async with (
        running_gateway(folder, models=models) as gateway,
        serve(gateway.app.asgi) as url,
        browser.browser() as chromium,
    ):
        app = gateway.app
        run = {"model": "ra1", "input": {"prompt": "a lighthouse", "size": "1024x1024"}}
        response = await app.client.post("/api/containers/run", json=run, headers=app.bearer)
        shared = await share(app, "run", response.json()["id"])
        names = {
            "run": response.json()["id"],
            "share": shared["url"].rpartition("/")[2],
            "account": app.account.id,
        }
        (await app.client.post("/api/pages", json=_NOTE, headers=app.bearer)).raise_for_status()
        operator = dataclasses.replace(app, account=app.operator)
        return [
            *await _rows(chromium, app, url, _PAGES, names),
            *await _rows(chromium, operator, url, _OPERATOR_PAGES, names),
        ]


def rows() -> list[Row]:
    """Check the pages; without Chromium, return a row that states it."""
    if browser.CHROMIUM is None:
        return [Row("skipped", 0, "", note="Chromium was not found on this machine")]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        return asyncio.run(_measure(Path(folder)))
