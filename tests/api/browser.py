"""Real Chromium for tests of the pages, with a check for errors and unexpected requests."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.database import one
from tests.api.app_fixture import AppFixture

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needed = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
# Navigations that a test makes on purpose.
EXPECTED = ("status of 404", "status of 409")


@dataclass
class Tab:
    """Page of a browser with the first account signed in, and the errors that it reported."""

    page: Any
    url: str
    wrong: list[str] = field(default_factory=list)

    async def open(self, path: str) -> None:
        """Navigate to `path`."""
        await self.page.goto(self.url + path, wait_until="domcontentloaded")

    def note(self, message: Any) -> None:
        """Record console messages, including violations of the content security policy."""
        if message.type == "error" and not any(text in message.text for text in EXPECTED):
            self.wrong.append(message.text)

    def watch(self, request: Any) -> None:
        """Record requests to other hosts."""
        if not request.url.startswith((self.url, "data:", "blob:", "about:")):
            self.wrong.append(f"asked {request.url}")


@dataclass(frozen=True)
class Look:
    """Display preferences of a browser."""

    width: int = 1180
    scheme: Literal["light", "dark"] = "light"
    scripts: bool = True
    touch: bool = False


@asynccontextmanager
async def browser(*arguments: str) -> AsyncIterator[Any]:
    """Start Chromium with the arguments."""
    async with playwright.async_playwright() as started:
        options = ["--no-sandbox", *arguments]
        chromium = await started.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            yield chromium
        finally:
            await chromium.close()


@asynccontextmanager
async def tab(chromium: Any, app: AppFixture, url: str, look: Look | None = None) -> AsyncIterator[Tab]:
    """Open a signed-in tab; fail at the end of the block if it reported an error."""
    look = look or Look()
    context = await chromium.new_context(
        viewport={"width": look.width, "height": 900},
        color_scheme=look.scheme,
        java_script_enabled=look.scripts,
        has_touch=look.touch,
    )
    context.set_default_timeout(60_000)
    result = Tab(await context.new_page(), url)
    result.page.on("console", result.note)
    result.page.on("pageerror", lambda error: result.wrong.append(str(error)))
    result.page.on("request", result.watch)
    clock = await app.product.database.read(one("clock"))
    assert clock is not None
    link = await app.product.database.write(login_sessions.new_link(app.account.id, clock["now"]))
    await result.open(f"/signin?token={link}")
    try:
        yield result
        assert not result.wrong, result.wrong
    finally:
        await context.close()
