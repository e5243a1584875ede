"""Real Chromium for tests of the pages, with a check for errors and unexpected requests."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import pytest

from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.database import one
from tests.api.app_fixture import AppFixture
from tests.harness import backends

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needed = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
# Navigations that a test makes on purpose.
EXPECTED = ("status of 404", "status of 409")


@dataclass
class Tab:
    """Page of a browser, and the errors that it reported."""

    page: Any
    url: str
    errors: list[str] = field(default_factory=list)

    async def open(self, path: str) -> None:
        await self.page.goto(self.url + path, wait_until="domcontentloaded")

    def ignore(self, *texts: str) -> None:
        """Remove recorded errors that contain one of the texts."""
        self.errors = [error for error in self.errors if not any(text in error for text in texts)]

    def note(self, message: Any) -> None:
        """Record console messages, including violations of the content security policy."""
        if message.type == "error" and not any(text in message.text for text in EXPECTED):
            self.errors.append(message.text)

    def watch(self, request: Any) -> None:
        """Record requests to other hosts."""
        if not request.url.startswith((self.url, "data:", "blob:", "about:")):
            self.errors.append(f"requested {request.url}")


@dataclass(frozen=True)
class TabOptions:
    """Size and preferences of a browser's tab."""

    width: int = 1180
    scheme: Literal["light", "dark"] = "light"
    scripts: bool = True
    touch: bool = False
    signed_in: bool = True


class BrowserApp(NamedTuple):
    """A running app, its URL, and a browser."""

    app: AppFixture
    url: str
    chromium: Any

    def tab(
        self, options: TabOptions | None = None, account: Account | None = None
    ) -> AbstractAsyncContextManager[Tab]:
        """Open a tab, signed in as the app's first account or as another one; see `tab`."""
        app = replace(self.app, account=account) if account else self.app
        return tab(self.chromium, app, self.url, options)


class SharedBrowser:
    """Chromium of the tests on one event loop, started by the first of them that has no other arguments."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._chromium: Any = None

    async def __aenter__(self) -> SharedBrowser:
        _shared[asyncio.get_running_loop()] = self
        return self

    async def __aexit__(self, *_: object) -> None:
        del _shared[asyncio.get_running_loop()]
        await self._stack.aclose()

    async def chromium(self) -> Any:
        """Return the browser; start it if it does not run."""
        if self._chromium is None or not self._chromium.is_connected():
            self._chromium = await self._stack.enter_async_context(_started())
        return self._chromium


_shared: dict[asyncio.AbstractEventLoop, SharedBrowser] = {}


@asynccontextmanager
async def browser(*arguments: str) -> AsyncIterator[Any]:
    """Return the browser of this event loop's tests, or start one with the arguments."""
    shared = None if arguments else _shared.get(asyncio.get_running_loop())
    if shared is not None:
        yield await shared.chromium()
        return
    async with _started(*arguments) as chromium:
        yield chromium


@asynccontextmanager
async def _started(*arguments: str) -> AsyncIterator[Any]:
    # Playwright runs on Node.js, which takes half a second to compile it again.
    os.environ["NODE_COMPILE_CACHE"] = str(backends.shared_folder("node"))
    async with playwright.async_playwright() as started:
        options = ["--no-sandbox", *arguments]
        chromium = await started.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            yield chromium
        finally:
            await chromium.close()


@asynccontextmanager
async def tab(
    chromium: Any, app: AppFixture, url: str, options: TabOptions | None = None
) -> AsyncIterator[Tab]:
    """Open a tab, signed in by default; fail at the end of the block if it reported an error."""
    options = options or TabOptions()
    context = await chromium.new_context(
        viewport={"width": options.width, "height": 900},
        color_scheme=options.scheme,
        java_script_enabled=options.scripts,
        has_touch=options.touch,
    )
    context.set_default_timeout(60_000)
    result = Tab(await context.new_page(), url)
    result.page.on("console", result.note)
    result.page.on("pageerror", lambda error: result.errors.append(str(error)))
    result.page.on("request", result.watch)
    if options.signed_in:
        clock = await app.database.read(one("clock"))
        assert clock is not None
        link = await app.database.write(login_sessions.new_link(app.account.id, clock["now"]))
        # Only the cookie is needed, which a request gets sooner than a page that is drawn.
        headers = {"Sec-Fetch-Site": "none"}
        response = await context.request.get(f"{url}/signin?token={link}", headers=headers, max_redirects=0)
        assert response.status == 303, response.status
    try:
        yield result
        assert not result.errors, result.errors
    except Exception as error:
        error.add_note(f"{result.page.url}, {options.width} pixels wide, reported: {result.errors}")
        raise
    finally:
        await context.close()
