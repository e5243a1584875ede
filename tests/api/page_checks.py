"""Checks that every page passes at every width: accessible, within the window, light, and without shifts."""

from __future__ import annotations

import json

import pytest

from tests.api.browser import Tab
from tests.api.test_memory_browser import RULES
from tests.api.test_page_details_browser import SHIFT

axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="axe is not installed")
MAX_BYTES, MAX_SHIFT = 350_000, 0.05
WIDTHS = (1440, 834, 390)
_SIZES = "performance.getEntries().reduce((sum, entry) => sum + (entry.encodedBodySize || 0), 0)"
_OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


async def is_accessible(tab: Tab) -> None:
    """Check the page as it is: no violation found by axe, and nothing wider than the window."""
    result = await axe.Axe().run(tab.page, options=RULES)
    assert result.response["violations"] == [], json.dumps(result.response["violations"], indent=1)[:4000]
    assert await tab.page.evaluate(_OVERFLOW) <= 0


async def opens_well(tab: Tab, path: str) -> None:
    """Open a page, and check also its weight and its layout shifts."""
    await tab.open(path)
    await tab.page.wait_for_load_state("load")
    assert await tab.page.evaluate(SHIFT) < MAX_SHIFT, path
    assert await tab.page.evaluate(_SIZES) <= MAX_BYTES, path
    await is_accessible(tab)
