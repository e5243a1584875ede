"""The editor and the notes of the memory in a real browser: completion, drafts, tasks and graph."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api import browser
from tests.api.app_fixture import running_app
from tests.api.browser import TabOptions
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_memory_pages import put, read
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]

NOTE = """# Ann

#team ==important== $x^2$

- [ ] call [[companies/acme]]
- [x] write
- leads [[projects/zeppelin]]
"""
# The layout shifts of a page that no input caused.
SHIFTS = """() => new Promise((resolve) => {
  let sum = 0;
  const observer = new PerformanceObserver((list) => {
    for (const each of list.getEntries()) if (!each.hadRecentInput) sum += each.value;
  });
  observer.observe({ type: 'layout-shift', buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
})"""


@pytest.fixture
async def notes(tmp_path: Path) -> AsyncIterator[browser.BrowserApp]:
    """A server with some notes, its address, a browser."""
    async with running_app(tmp_path) as app, serve(app.asgi) as url, browser.browser() as chromium:
        await put(app, "companies/acme", "# Acme Airships\n", tags=["tea"])
        await put(app, "projects/zeppelin", "# Zeppelin\n\n- built_by [[companies/acme]]\n")
        await put(app, "people/ann", NOTE)
        yield browser.BrowserApp(app, url, chromium)


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_notes_fit_and_are_accessible(notes: browser.BrowserApp, width: int) -> None:
    async with notes.tab(TabOptions(width)) as tab:
        for path in ("/memory/people/ann", "/memory/people/ann/~edit", "/memory/~import"):
            await tab.open(path)
            if path.endswith("~edit"):
                await tab.page.wait_for_selector("#preview math")
                await tab.page.focus("#body")
                await tab.page.keyboard.press("Control+End")
                await tab.page.keyboard.type("[[zep")
                await tab.page.wait_for_selector("#completions [aria-selected=true]")
            assert await tab.page.evaluate(SHIFTS) < 0.05, path
            assert await tab.page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert await violations(tab.page) == [], path
        await tab.open("/memory/people/ann")
        await tab.page.click("#graph svg:visible a:has-text('Zeppelin')")
        await tab.page.wait_for_url("**/memory/projects/zeppelin")


async def test_tasks_are_checked_with_and_without_scripts(notes: browser.BrowserApp) -> None:
    app = notes.app
    async with notes.tab() as tab:
        await tab.open("/memory/people/ann")
        await tab.page.click("role=checkbox[name='call companies/acme']")
        await tab.page.wait_for_selector("role=checkbox[name='call companies/acme'][checked]")
        assert await tab.page.evaluate("document.activeElement.className") == "task"
        await tab.page.keyboard.press("Space")
        await tab.page.wait_for_selector("role=checkbox[name='call companies/acme'][checked=false]")
    assert (await read(app, "people/ann"))["version"] == 3
    async with notes.tab(TabOptions(scripts=False)) as tab:
        await tab.open("/memory/people/ann")
        await tab.page.click("role=checkbox[name='write']")
        await tab.page.wait_for_selector("role=checkbox[name='write'][checked=false]")
    assert "- [ ] write" in (await read(app, "people/ann"))["body"]


async def test_links_and_tags_are_completed(notes: browser.BrowserApp) -> None:
    async with notes.tab() as tab:
        page = tab.page
        await tab.open("/memory/~new")
        await page.focus("#body")
        await page.keyboard.type("By [[airsh")
        await page.wait_for_selector("#completions:not([hidden]) >> text=Acme Airships")
        await page.keyboard.press("Enter")
        assert await page.input_value("#body") == "By [[companies/acme]]"
        await page.keyboard.type(" for #te")
        await page.wait_for_selector("#completions li:nth-child(2)")
        await page.keyboard.press("ArrowUp")
        await page.keyboard.press("Tab")
        assert await page.input_value("#body") == "By [[companies/acme]] for #team "
        await page.keyboard.type("[[zep")
        await page.wait_for_selector("#completions:not([hidden]) >> text=Zeppelin")
        await page.keyboard.press("Escape")
        assert await page.locator("#completions").is_hidden()
        await page.keyboard.press("Control+z")
        assert "[[companies/acme]]" in await page.input_value("#body")


async def test_a_completion_replaces_only_the_link_at_the_cursor(notes: browser.BrowserApp) -> None:
    async with notes.tab() as tab:
        page = tab.page
        await tab.open("/memory/~new")
        assert await page.evaluate("document.activeElement.id") == "title"
        await page.focus("#body")
        await page.keyboard.type("By [[airsh")
        await page.wait_for_selector("#completions:not([hidden]) >> text=Acme Airships")
        # Later texts get no entries, as on a slow connection.
        await page.route("**/~complete?*", lambda route: route.abort())
        await page.keyboard.type("ore]] and on.\n")
        assert await page.input_value("#body") == "By [[airshore]] and on.\n"
        await page.unroute("**/~complete?*")
        await page.keyboard.type("See [[airsh")
        await page.wait_for_selector("#completions:not([hidden]) >> text=Acme Airships")
        await page.evaluate("document.getElementById('body').setSelectionRange(2, 2)")
        await page.keyboard.press("Enter")
        assert (await page.input_value("#body")).endswith("See [[airsh")
        tab.ignore("ERR_FAILED")


async def test_a_draft_survives_a_crash_and_ends_when_saved(notes: browser.BrowserApp) -> None:
    app = notes.app
    edit = "/memory/projects/zeppelin/~edit"
    drafts = "Object.keys(localStorage).filter((key) => key.startsWith('memory-draft:')).length"
    async with notes.tab() as tab:
        page = tab.page
        await tab.open(edit)
        await page.fill("#body", "# Zeppelin\n\n- built_by [[companies/acme]]\n\nMy lost paragraph.\n")
        await page.wait_for_function(f"() => {drafts} === 1")
        await put(app, "projects/zeppelin", "# Zeppelin\n\nNew.\n\n- built_by [[companies/acme]]\n")
        await tab.open(edit)
        assert "lost" not in await page.input_value("#body")
        await page.click("#draft >> text=Restore")
        assert "My lost paragraph." in await page.input_value("#body")
        await page.click("[value=save]")
        await page.wait_for_selector(".merged")
        assert "New." in await page.input_value("#body")
        assert await page.locator("#draft").is_hidden()
        await page.click("[value=save]")
        await page.wait_for_url("**/memory/projects/zeppelin")
        assert await page.evaluate(drafts) == 0
        await tab.open(edit)
        await page.fill("#body", "Nothing.\n")
        await page.wait_for_function(f"() => {drafts} === 1")
        await page.reload()
        await page.click("#draft >> text=Discard")
        assert await page.evaluate(drafts) == 0
    body = (await read(app, "projects/zeppelin"))["body"]
    assert "New." in body
    assert "My lost paragraph." in body
