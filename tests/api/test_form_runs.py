"""The run form without JavaScript: submitted as a form, its run opens on a separate page."""

from __future__ import annotations

import io
import re
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from sixfold.core.predictions.states import PredictionState
from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.test_image_marks_browser import LEFT, RIGHT, photo
from tests.api.test_pages import HTML, signed_in


async def test_a_submitted_form_starts_a_run_with_typed_inputs(app: AppFixture) -> None:
    csrf = await signed_in(app)
    form = {"csrf": csrf, "prompt": "a fox", "seed": "7", "size": "1024x1024"}
    response = await app.client.post("/pages/forms/ra1", data=form)
    assert response.status_code == 303
    assert (await app.client.get(response.headers["location"])).status_code == 200
    prediction = await app.predictions.get_any(response.headers["location"].rpartition("/")[2])
    assert prediction.inputs["seed"] == 7
    # A switch that is off is not sent.
    assert prediction.inputs["enable_safety_checker"] is False


async def test_the_form_of_the_start_page_names_its_model(app: AppFixture) -> None:
    csrf = await signed_in(app)
    page = await app.client.get("/", headers=HTML)
    assert '<form class="generate" id="generate" method="post" action="/pages/forms"' in page.text
    response = await app.client.post("/pages/forms", data={"csrf": csrf, "model": "anime", "prompt": "a fox"})
    assert response.status_code == 303
    prediction = await app.predictions.get_any(response.headers["location"].rpartition("/")[2])
    assert (prediction.model, prediction.inputs["prompt"]) == ("anime", "a fox")
    response = await app.client.post("/pages/forms", data={"csrf": csrf, "prompt": "a fox"})
    assert response.status_code == 404


async def test_files_of_a_form_are_stored_as_inputs(app: AppFixture, tmp_path: Path) -> None:
    csrf = await signed_in(app)
    png = photo(tmp_path).read_bytes()

    async def submit(name: str, content: bytes, token: str = csrf) -> httpx.Response:
        files = {name: ("photo.png", content, "image/png"), "file.mask": ("", b"")}
        return await app.client.post("/pages/forms/remove-background", data={"csrf": token}, files=files)

    response = await submit("file.image_url", png)
    assert response.status_code == 303, response.text
    prediction = await app.predictions.get_any(response.headers["location"].rpartition("/")[2])
    stored = await app.client.get(prediction.inputs["image_url"])
    assert stored.content == png
    for name, content, text in (
        ("file.image_url", b"text", "not a supported image"),
        ("file.other", png, "does not have a file input"),
    ):
        response = await submit(name, content)
        assert response.status_code == 400
        assert text in response.text
    assert (await submit("file.image_url", png, "x")).status_code == 403


async def test_a_file_of_a_form_is_the_file_that_a_workflow_names(app: AppFixture, tmp_path: Path) -> None:
    csrf = await signed_in(app)
    png = photo(tmp_path).read_bytes()
    for model, name in (("space:image-upscale", "image"), ("space:photoreal-img2img", "image")):
        page = (await app.client.get(f"/workflows/{model.removeprefix('space:')}", headers=HTML)).text
        assert f'name="file.{name}"' in page
        fields = {"csrf": csrf, "prompt": "a lake"}
        files = {f"file.{name}": ("photo.png", png, "image/png")}
        response = await app.client.post(f"/pages/forms/{model}", data=fields, files=files)
        assert response.status_code == 303, response.text
        prediction = await app.predictions.get_any(response.headers["location"].rpartition("/")[2])
        assert (await app.client.get(prediction.inputs[name])).content == png


async def test_the_page_of_a_run_cancels_it_with_a_form(app: AppFixture) -> None:
    csrf = await signed_in(app)
    response = await app.client.post("/pages/forms/ra2", data={"csrf": csrf, "prompt": "SLOW fox"})
    path = response.headers["location"]
    assert f'action="{path}/cancel"' in (await app.client.get(path)).text
    assert (await app.client.post(f"{path}/cancel", data={"csrf": "x"})).status_code == 403
    response = await app.client.post(f"{path}/cancel", data={"csrf": csrf})
    assert (response.status_code, response.headers["location"]) == (303, path)
    prediction = await app.predictions.get_any(path.rpartition("/")[2])
    assert (await app.predictions.wait(prediction, 30)).state is PredictionState.CANCELED


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
async def test_invalid_form_is_refused_on_a_page(
    app: AppFixture, model: str, form: dict[str, str], status: int, text: str
) -> None:
    csrf = await signed_in(app)
    response = await app.client.post(f"/pages/forms/{model}", data={"csrf": csrf, **form})
    assert (response.status_code, response.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert text in response.text
    assert f'href="/catalog/{model}">Back to the form' in response.text
    assert await app.balance() == ("5.00", "0.00")


@pytest.mark.browser
@browser.needed
async def test_background_is_removed_with_a_box_without_javascript(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    app = browser_app.app
    async with browser_app.tab(TabOptions(width=390, scripts=False)) as tab:
        page = tab.page
        await tab.open("/catalog/remove-background")
        assert not await page.is_visible("#file-image_url + .choose")
        await page.set_input_files("#file-image_url", photo(tmp_path))
        await page.fill("#in-box", "20, 40, 145, 200")
        await page.click("#run .actions .primary")
        await page.wait_for_url("**/predictions/pred_*")
        # The page loads itself again until the run has ended.
        path = await page.get_attribute(".outputs figcaption a", "href")
        output = Image.open(io.BytesIO((await app.client.get(re.sub(r"\?.*", "", path))).content))
        pixels = np.asarray(output.convert("RGBA"))
        assert [int(pixels[y, x, 3]) for x, y in (LEFT, RIGHT)] == [255, 0]
