"""Checks that every page passes at every width: accessible, within the window, light, and without shifts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.browser import Tab
from tests.api.test_page_details_browser import SHIFT
from tests.harness.cases import nightly_after

axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="axe is not installed")
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]},
    "rules": {"region": {"enabled": False}},
}
MAX_BYTES, MAX_SHIFT = 350_000, 0.05
WIDTHS = (1440, 834, 390)
# For tests of one width each; the narrowest is the one that most changes of a page break.
EACH_WIDTH = nightly_after(1, reversed(WIDTHS))
_SIZES = "performance.getEntries().reduce((sum, entry) => sum + (entry.encodedBodySize || 0), 0)"
_OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


async def violations(page: Any) -> list[tuple[str, list[str]]]:
    """Return the rules of axe that a page violates, each with the elements that do."""
    result = await axe.Axe().run(page, options=RULES)
    return [
        (rule["id"], [node["html"][:120] for node in rule["nodes"]]) for rule in result.response["violations"]
    ]


async def is_accessible(tab: Tab) -> None:
    """Check the page as it is: no violation found by axe, and nothing wider than the window."""
    assert await violations(tab.page) == []
    assert await tab.page.evaluate(_OVERFLOW) <= 0


async def opens_well(tab: Tab, path: str) -> None:
    """Open a page, and check also its weight and its layout shifts."""
    await tab.open(path)
    await tab.page.wait_for_load_state("load")
    assert await tab.page.evaluate(SHIFT) < MAX_SHIFT, path
    assert await tab.page.evaluate(_SIZES) <= MAX_BYTES, path
    await is_accessible(tab)
