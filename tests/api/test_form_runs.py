"""The run form without JavaScript: submitted as a form, its run opens on a page of its own."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.media.media import MEDIA_PATH
from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import Look
from tests.api.test_marks_browser import LEFT, RIGHT, photo
from tests.api.test_pages import signed_in


async def test_a_submitted_form_starts_a_run_with_typed_inputs(app: AppFixture) -> None:
    csrf = await signed_in(app)
    form = {"csrf": csrf, "prompt": "a fox", "seed": "7", "size": "1024x1024"}
    answer = await app.client.post("/pages/forms/ra1", data=form)
    assert answer.status_code == 303
    assert (await app.client.get(answer.headers["location"])).status_code == 200
    prediction = await app.product.predictions.get_any(answer.headers["location"].rpartition("/")[2])
    assert prediction.inputs["seed"] == 7
    # A switch that is off is not sent.
    assert prediction.inputs["enable_safety_checker"] is False


@pytest.mark.parametrize(
    ("model", "form", "status", "text"),
    [
        ("ra1", {}, 400, "prompt is required"),
        ("ra1", {"prompt": "a fox", "seed": "many"}, 400, "seed must be a whole number"),
        ("no-such", {"prompt": "a fox"}, 404, "no-such"),
        ("ra1", {"prompt": "a fox", "csrf": "x"}, 403, "This form has expired"),
        ("anime-image", {"prompt": "a fox", "option.hardware": "abacus"}, 400, "hardware"),
    ],
)
async def test_a_wrong_form_is_refused_on_a_page(
    app: AppFixture, model: str, form: dict[str, str], status: int, text: str
) -> None:
    csrf = await signed_in(app)
    answer = await app.client.post(f"/pages/forms/{model}", data={"csrf": csrf, **form})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert text in answer.text
    assert await app.balance() == ("5.00", "0.00")


@pytest.mark.browser
@browser.needed
async def test_a_box_cuts_out_a_subject_without_javascript(
    browser_app: tuple[AppFixture, str, Any], tmp_path: Path
) -> None:
    app, url, chromium = browser_app
    async with browser.tab(chromium, app, url, Look(width=390, scripts=False)) as tab:
        page = tab.page
        file = await app.product.media.upload(Tenant(app.account.id), photo(tmp_path), "image/png")
        await tab.open("/catalog/remove-background")
        await page.fill("#in-image_url", f"{app.product.settings.base_url}{MEDIA_PATH}{file.name}")
        await page.fill("#in-box", "20, 40, 145, 200")
        await page.click("#run .actions .primary")
        await page.wait_for_url("**/predictions/pred_*")
        # The page loads itself again until the run has ended.
        path = await page.get_attribute(".outputs figcaption a", "href")
        output = Image.open(io.BytesIO((await app.client.get(re.sub(r"\?.*", "", path))).content))
        pixels = np.asarray(output.convert("RGBA"))
        assert [int(pixels[y, x, 3]) for x, y in (LEFT, RIGHT)] == [255, 0]
