"""Speech in chats, with real engines in a real browser: responses read aloud, and dictation."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.api import browser
from tests.api.app_fixture import bearer, small_models
from tests.api.browser import TabOptions
from tests.api.gateway import running_gateway
from tests.mcp.loopback import serve

pytest.importorskip("pocketsphinx", reason="pocketsphinx is not installed")
pytestmark = [pytest.mark.browser, browser.needed]


async def _recording(gateway: Any) -> bytes:
    """Return speech as the WAV file that the browser plays as its microphone."""
    inputs = {"service": "tts", "prompt": "please open the window", "format": "wav"}
    response = await gateway.app.client.post("/api/service", json=inputs, headers=bearer(gateway.app.key))
    url = response.json()["output"]["url"]
    return bytes((await gateway.app.client.get(url)).content)


@pytest.mark.parametrize("width", [1440, *(pytest.param(n, marks=pytest.mark.nightly) for n in (834, 390))])
async def test_read_aloud_and_dictate_in_a_chat(tmp_path: Path, width: int) -> None:
    models = small_models(real={"speech", "listening"})
    microphone = tmp_path / "microphone.wav"
    fake = f"--use-file-for-fake-audio-capture={microphone}%noloop"
    flags = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", fake)
    async with (
        running_gateway(tmp_path, models=models) as gateway,
        serve(gateway.app.asgi) as url,
        browser.browser(*flags, "--autoplay-policy=no-user-gesture-required") as chromium,
        browser.tab(chromium, gateway.app, url, TabOptions(width=width)) as tab,
    ):
        await asyncio.to_thread(microphone.write_bytes, await _recording(gateway))
        page, gateway.acme.answer = tab.page, "It is **open**.\n\n```\nx = 1\n```\n"
        await tab.open("/chat")
        await page.fill("#text", "Is it?")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#messages .cost, #last .cost")
        async with page.expect_request("**/pages/run") as requested:
            await page.click("[data-speak]")
        assert (await requested.value).post_data_json["input"] == {"prompt": "It is open."}
        await page.wait_for_selector("[data-speak]:has-text('Stop reading')")
        assert await page.locator(".answer .about .note").inner_text() == "0.002 USD"
        await page.click("[data-speak]")
        assert await page.locator("[data-speak]").inner_text() == "Read aloud"
        await page.fill("#text", "Say:")
        await page.click("#dictate")
        await page.wait_for_selector("#dictate[aria-pressed=true]:has-text('Stop and transcribe')")
        await page.wait_for_timeout(2500)  # the length of the recording
        await page.click("#dictate")
        await page.wait_for_selector("#dictate:not([disabled]):text-is('Dictate')")
        assert re.match(r"Say: \w+", await page.input_value("#text"))
        assert not await page.is_visible("#problem")


async def test_speech_buttons_are_absent_without_speech_engines(tmp_path: Path) -> None:
    models = small_models()
    engines = {name: {**row, "kind": "provider"} for name, row in models["engines"].items()}
    async with running_gateway(tmp_path, models={**models, "engines": engines}) as gateway:
        page = await gateway.app.client.get("/chat")
        assert 'id="dictate"' not in page.text
        assert "data-speech" not in page.text
