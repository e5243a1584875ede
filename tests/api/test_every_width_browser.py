"""A page of each part of the website at three widths: what its task needs is in the first view.

One browser shows all pages and resizes its window, so that each part is in `make test` at every width. The
other files of browser tests use the pages; many of their tests have one width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from sixfold.app import catalog as app_catalog
from tests.api import browser, page_checks
from tests.api.app_fixture import AppFixture
from tests.api.browser import Tab
from tests.api.gateway import running_gateway
from tests.api.test_shares import share
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]
SMALL = {"prompt": "a red fox", "width": 256, "height": 256}
NOTES = {"people/ann": "Ann keeps the [[places/lighthouse]].", "places/lighthouse": "Kept by [[people/ann]]."}
# The selectors without an element that is in the window, and by how much the page is wider than the window.
SEEN = """(selectors) => {
  const isInView = (each) => {
    const { top, bottom, left, right, height } = each.getBoundingClientRect();
    return height > 0 && top >= 0 && bottom <= innerHeight && left >= 0 && right <= innerWidth;
  };
  const isShown = (each) => isInView(each) && (each.tagName !== "IMG" || each.naturalWidth > 0);
  const absent = selectors.filter((selector) => ![...document.querySelectorAll(selector)].some(isShown));
  return [absent, document.documentElement.scrollWidth - innerWidth];
}"""


class PagePart(msgspec.Struct, frozen=True):
    """A page, and what must be in its window before any scrolling."""

    path: str
    in_view: tuple[str, ...]
    viewer: str = "account"


# The placeholders are the ids of a run and of its share.
PARTS: Mapping[str, PagePart] = {
    "errors name the next step": PagePart("/nowhere", ("h1", "main a")),
    "model": PagePart("/catalog/ra1", (".one-line h1", ".hint", "#in-prompt", "#run .actions .primary")),
    "history": PagePart("/predictions", ("#q", ".filters > summary", ".runs .thumb img", ".runs .name")),
    "result": PagePart(
        "/predictions/{run}",
        (
            "h1",
            ".outputs img",
            ".receipt-strip > summary",
            ".next-steps [download]",
            ".next-steps .pop > summary",
        ),
    ),
    "result with a long prompt": PagePart(
        "/predictions/{long}",
        (".outputs img", ".receipt-strip > summary", ".next-steps [download]", ".next-steps .pop > summary"),
    ),
    "chat": PagePart("/chat", ("#text", "form .primary", "select")),
    "share": PagePart("/s/{share}", ("main img", "main .primary"), "visitor"),
    "workflow": PagePart(
        "/workflows/stylized-text-to-image",
        ("[data-pane]", ".node[data-node='7'] .card", ".manage > summary", "#run .actions .primary"),
    ),
    "live session": PagePart("/live/world-model", ("#canvas", "#stage", "#live .primary")),
    "account": PagePart(
        "/account/usage", ("nav.chips [aria-current]", "a[href='/account/security']", ".balance")
    ),
    "operator": PagePart("/admin", ("h1", "nav.chips [aria-current]", "a[href='/admin/people']"), "operator"),
    "catalog": PagePart(
        "/catalog?q=cutout",
        ("#q", ".card:not([hidden]) h3, .card:not([hidden]) h2", ".top .find"),
    ),
    "memory": PagePart("/memory/people/ann", ("h1", ".prose a", "a[accesskey=e]")),
    "expired link": PagePart(
        "/signin?token=link_x", (".problem", "#link-email", "form[action='/signin/link'] button"), "visitor"
    ),
}


async def test_every_part_fits_at_three_widths(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, models=app_catalog.models_document()) as gateway,
        serve(gateway.app.asgi) as url,
        browser.browser() as chromium,
    ):
        app = gateway.app
        names, problems = await _fill(app), list[str]()
        operator = dataclasses.replace(app, account=app.operator)
        for viewer, account, signed_in in (
            ("account", app, True),
            ("operator", operator, True),
            ("visitor", app, False),
        ):
            options = browser.TabOptions(signed_in=signed_in)
            async with browser.tab(chromium, account, url, options) as tab:
                parts = {name: part for name, part in PARTS.items() if part.viewer == viewer}
                for width, scheme in zip(page_checks.WIDTHS, ("light", "dark", "light"), strict=True):
                    await tab.page.emulate_media(color_scheme=scheme)
                    await tab.page.set_viewport_size({"width": width, "height": 900 if width > 390 else 844})
                    for name, part in parts.items():
                        path = part.path.format_map(names)
                        if found := await _find_problem(tab, path, part.in_view):
                            problems.append(f"{name}, {width} pixels: {found}")
                tab.ignore("status of 401")
    assert problems == []


async def _fill(app: AppFixture) -> dict[str, str]:
    """Run a model, share the run and write two notes; return what the paths of the parts name."""
    body = {"model": "fast-image-native", "input": SMALL}
    run = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    for slug, text in NOTES.items():
        await app.client.post("/api/pages", json={"slug": slug, "body": text}, headers=app.bearer)
    shared = await share(app, "run", run["id"])
    body = {
        "model": "fast-image-native",
        "input": {**SMALL, "height": 512, "prompt": "a red fox in snow " * 12},
    }
    long = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    await _fail(app)
    return {"run": run["id"], "long": long["id"], "share": shared["url"].rpartition("/")[2]}


async def _fail(app: AppFixture) -> None:
    """Run a workflow with a long name and refund it, so that the operator's page lists a failure."""
    path, body = "/api/graph/spaces/turbo-text-to-image/duplicate", {"name": "stylized" * 10}
    slug = (await app.client.post(path, json=body, headers=app.bearer)).json()["slug"]
    body = {"input": {"prompt": "a fox", "width": 64, "height": 64}}
    run = await app.client.post(f"/api/graph/spaces/{slug}/run", json=body, headers=app.bearer)
    service = app.server.predictions
    await service.refund(await service.get_any(run.json()["id"]), f"The run of {slug} was refunded")


async def _find_problem(tab: Tab, path: str, selectors: tuple[str, ...]) -> str:
    """Return what is not in the first view of a page, or ""."""
    await tab.open(path)
    is_complete = f"(selectors) => ({SEEN})(selectors)[0].length === 0"
    try:
        await tab.page.wait_for_function(is_complete, arg=selectors, timeout=20_000)
    except browser.playwright.TimeoutError:
        return f"without {(await tab.page.evaluate(SEEN, selectors))[0]}"
    return "wider than the window" if (await tab.page.evaluate(SEEN, selectors))[1] > 0 else ""


async def test_result_and_next_steps_fit_a_small_phone(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, models=app_catalog.models_document()) as gateway,
        serve(gateway.app.asgi) as url,
        browser.browser() as chromium,
    ):
        names = await _fill(gateway.app)
        async with browser.tab(chromium, gateway.app, url, browser.TabOptions(width=390)) as tab:
            await tab.page.set_viewport_size({"width": 390, "height": 700})
            part = PARTS["result with a long prompt"]
            assert await _find_problem(tab, part.path.format_map(names), part.in_view) == ""
