"""The memory's pages in a real browser: editing by a user, and hostile pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api import browser
from tests.api.app_fixture import running_app
from tests.api.browser import TabOptions
from tests.api.page_checks import violations
from tests.api.test_memory_pages import ANN, put, read
from tests.corpora import hostile
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]

# What could do something: attributes that run or style, addresses of other kinds, elements that load.
ACTIVE = r"""() => {
  const kinds = /^(https?:|mailto:|data:image[/](png|jpeg|gif|webp)|#|[/](?![/\\])|$)/i;
  const ours = /^([/]media[/]|[/]uploads[/]|data:image)/;
  const runs = (at) => at.name.startsWith('on') || ['style', 'srcdoc'].includes(at.name);
  const leads = (at) => ['href', 'src', 'action', 'data'].includes(at.name) && !kinds.test(at.value);
  const loads = 'main :is(script, style, iframe, object, embed, link, base, video, audio, .prose svg)';
  return [
    ...[...document.querySelectorAll('*')].flatMap((node) => [...node.attributes]
      .filter((at) => runs(at) || leads(at)).map((at) => `${node.tagName} ${at.name}=${at.value}`)),
    ...[...document.querySelectorAll(loads)].map((node) => node.outerHTML),
    ...[...document.images].map((image) => image.getAttribute('src'))
      .filter((src) => !ours.test(src) || /[.][.]|%2e/i.test(src)),
  ];
}"""


@pytest.fixture
async def browser_app(tmp_path: Path) -> AsyncIterator[browser.BrowserApp]:
    """A server with some pages, its address, a browser."""
    async with running_app(tmp_path) as app, serve(app.asgi) as url, browser.browser() as chromium:
        await put(app, "companies/acme", "# Acme\n\nMakes quiet airships.\n", type="company", tags=["client"])
        await put(app, "projects/zeppelin", "# Zeppelin\n\nFirst.\n\nMiddle.\n\nLast.\n")
        await put(app, "people/ann", ANN + "\n- **2026-11-02** — Met Ben\n", type="person", tags=["team"])
        yield browser.BrowserApp(app, url, chromium)


async def test_search_updates_while_typing_and_works_by_keyboard(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/memory")
        await page.keyboard.press("/")
        await page.keyboard.type("airships")
        # A search for the stem may answer first: the last one sets the address.
        await page.wait_for_url("**/memory?q=airships")
        assert await page.inner_text("#results mark") == "airships"
        chat = await page.get_attribute("#results .tally a", "href")
        assert chat == "/chat?text=%40memory%20airships"
        await page.click(".why summary")
        assert await page.locator("meter").first.is_visible()
        await page.focus("#q")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/memory/companies/acme")
        assert await page.inner_text("h1") == "Acme"


async def test_edit_is_previewed_saved_and_merged(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/memory/projects/zeppelin/~edit")
        await page.fill(
            "#body", "# Zeppelin\n\nFirst.\n\nMiddle.\n\nLast, by **me** at [[companies/acme]].\n"
        )
        await page.wait_for_selector("#preview strong")
        assert await page.inner_text("#preview a.wiki") == "Acme"
        await put(app, "projects/zeppelin", "# Zeppelin\n\nFirst, by the agent.\n\nMiddle.\n\nLast.\n")
        await page.keyboard.press("Control+s")
        await page.wait_for_selector(".merged")
        assert await page.locator(".conflict").count() == 0
        await page.click("[value=save]")
        await page.wait_for_url("**/memory/projects/zeppelin")
        text = await page.inner_text(".prose")
        assert "First, by the agent." in text
        assert "Last, by me at Acme." in text

        await tab.open("/memory/projects/zeppelin/~edit")
        await page.fill("#body", "# Zeppelin\n\nMine alone.\n")
        await put(app, "projects/zeppelin", "# Zeppelin\n\nTheirs alone.\n")
        await page.click("[value=save]")
        await page.wait_for_selector(".conflict")
        assert "Theirs alone." in await page.input_value("#body")
        await page.click("[data-take=mine]")
        assert await page.input_value("#body") == "# Zeppelin\n\nMine alone.\n"
        await page.click("[value=save]")
        await page.wait_for_url("**/memory/projects/zeppelin")
        assert await page.inner_text(".prose") == "Mine alone."
    assert (await read(app, "projects/zeppelin"))["version"] == 5


async def test_inferred_links_are_reviewed_and_versions_restored(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/memory/people/ann")
        assert "Ann works at Acme." in await page.inner_text("#inferred blockquote")
        await page.focus(".leads a:not(.missing-page) >> nth=0")
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.press("Tab")
        await page.wait_for_selector("#page-card:has-text('just now')")
        await page.keyboard.press("Escape")
        assert not await page.is_visible("#page-card")
        await page.click("#inferred [value=dismiss]")
        await page.wait_for_selector("#inferred", state="detached")
        assert "works_at" not in {link["type"] for link in (await read(app, "people/ann"))["links"]}
        await put(app, "people/ann", "# Ann\n\nWritten over.\n")
        await page.click("main >> text=History")
        await page.click("text='Changes' >> nth=0")
        assert "Written over." in await page.inner_text(".diff .new")
        await page.click("text=Restore")
        await page.wait_for_url("**/memory/people/ann")
        assert "Ann works at Acme." in await page.inner_text(".prose")
        await page.click("text=Move or delete")
        await page.click("text=Delete this page")
        await page.click("text='Restore'")
        await page.wait_for_selector(".prose")


async def test_page_is_edited_and_read_without_scripts(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(scripts=False)) as tab:
        page = tab.page
        await tab.open("/memory?q=airships")
        await page.click(".hits h2 a")
        await page.click("text=Edit")
        await page.fill("#body", "# Acme\n\nNow by **hand**.\n")
        await page.click("[value=preview]")
        assert await page.inner_text("#preview strong") == "hand"
        await page.click("[value=save]")
        assert await page.inner_text(".prose strong") == "hand"


@pytest.mark.nightly
@pytest.mark.parametrize("options", [TabOptions(340), TabOptions(1180, "dark")])
async def test_every_page_fits_and_is_accessible(
    browser_app: browser.BrowserApp, options: TabOptions
) -> None:
    app = browser_app.app
    long = "w" * 180
    await put(app, long, f"# {long}\n\n{long} [[{long}]]\n\n```\n{long}\n```\n\n| {long} |\n|--|\n| a |\n")
    await put(app, long, f"# {long}\n\nchanged\n")
    await put(app, long, f"# {long}\n\n```\n{long}\n```\n\n| {long} | b |\n|--|--|\n| a | c |\n")
    paths = ["/memory", "/memory?q=ann", "/memory/people/ann", "/memory/people/ann/~edit", "/memory/~new"]
    paths += [f"/memory/{long}", f"/memory/{long}/~history?from=1&to=2", "/memory/people/ann/~move"]
    paths += ["/memory/nobody", "/memory/~import", "/memory?tag=team", "/memory?prefix=people/"]
    async with browser_app.tab(options) as tab:
        for path in paths:
            await tab.open(path)
            width = await tab.page.evaluate("document.documentElement.scrollWidth")
            assert width <= options.width, (path, width)
            assert await violations(tab.page) == [], path


async def test_hostile_texts_run_no_scripts(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    assert len(hostile.ALL) > 120
    async with browser_app.tab() as tab:
        tab.page.on("dialog", lambda dialog: tab.errors.append(dialog.message))
        for number, text in enumerate(hostile.ALL):
            line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
            await put(
                app, f"h/{number}", text, title=line[:500], type="note", tags=[line.replace(",", "")[:100]]
            )
            await tab.open(f"/memory/h/{number}")
            assert await tab.page.evaluate(ACTIVE) == [], text
        for path in ("/memory", "/memory?prefix=h/", "/memory?q=script+alert", "/memory/h/0/~edit"):
            await tab.open(path)
            assert await tab.page.evaluate(ACTIVE) == [], path
        await tab.page.wait_for_selector("#preview .prose")
        assert await tab.page.evaluate(ACTIVE) == []
        # These images do not exist.
        tab.ignore("/media/")
