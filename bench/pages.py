"""The chat page in a real browser: the first token on the page, and long tasks in a thread of 500 messages.

.venv/bin/python -m bench pages; needs Chromium.

The server and a model server run in this process. The time of a first token is from its arrival at the
server to the change of the page. A long task is one of more than 50 ms in the main thread of the page, as
browsers count them; beside their number stand the layouts, which do not depend on the machine's speed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bench.reporting import Row, calibration, of_samples
from tests.api import browser
from tests.api.app_fixture import AppFixture, running_app
from tests.api.browser import Look, Tab
from tests.fakes import fault_server
from tests.mcp.loopback import served

TITLE = "Chat page: first token, and a thread of 500 messages"
FIRST_TOKENS, MESSAGES, BATCH, WORDS, ROUNDS = 20, 500, 20, 400, 5
ANSWER = (
    "## Plan\n\n1. one\n2. **two**\n\n```python\ndef f(n):\n    return n * 2\n```\n\nThe area is $a^2$.\n"
)
# Tasks of more than 50 ms, and the moment at which the text of the current answer changes first.
SCRIPT = """
window.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((each) => each.duration)))
  .observe({ type: "longtask", buffered: true });
window.firstToken = () => new Promise((found) => {
  new MutationObserver((_, observer) => {
    if (!document.querySelector("#active [data-open]")?.textContent) return;
    observer.disconnect();
    found(performance.timeOrigin + performance.now());
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
});
"""


class ModelServer:
    """A model server that sends one word, and notes when, or an answer of many words."""

    def __init__(self) -> None:
        self.sent_at = 0.0
        self.words = 1

    async def chat(self, _request: Request) -> Response:
        return StreamingResponse(self._chunks(), media_type="text/event-stream")

    async def models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async def _chunks(self) -> AsyncIterator[str]:
        self.sent_at = time.time() * 1000
        for number in range(self.words):
            yield _event({"delta": {"content": "word\n\n" if number % 40 == 39 else "word "}})
            await asyncio.sleep(0.005)
        yield _event({"delta": {}, "finish_reason": "stop"})
        yield "data: [DONE]\n\n"

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]


def _event(choice: dict[str, Any]) -> str:
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, **choice}]}
    return f"data: {json.dumps(chunk)}\n\n"


async def _ask(tab: Tab, text: str) -> None:
    await tab.page.fill("#text", text)
    await tab.page.keyboard.press("Enter")


async def _end(tab: Tab) -> None:
    await tab.page.wait_for_selector("#composer:not([data-busy])")


async def _first_tokens(tab: Tab, model: ModelServer) -> list[float]:
    """Return the seconds from the sending of each first token to the change of the page."""
    seconds: list[float] = []
    for _ in range(FIRST_TOKENS):
        arrival = asyncio.create_task(tab.page.evaluate("firstToken()"))
        await _ask(tab, "Go on")
        seconds.append((await arrival - model.sent_at) / 1000)
        await _end(tab)
    return seconds


async def _fill(app: AppFixture, chat_id: str) -> None:
    """Add messages to a chat until it has `MESSAGES`."""
    roles = itertools.cycle((("user", "input_text", "What next?"), ("assistant", "output_text", ANSWER)))
    for _ in range(MESSAGES // BATCH):
        items = [
            {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
            for role, kind, text in itertools.islice(roles, BATCH)
        ]
        path = f"/v1/conversations/{chat_id}/items"
        answer = await app.client.post(path, json={"items": items}, headers=app.bearer)
        answer.raise_for_status()


async def _counted(tab: Tab, name: str, action: Any) -> list[Row]:
    """Return the long tasks and the layouts of an action, the medians of some rounds."""
    counts, longest, layouts = list[float](), 0.0, list[float]()
    session = await tab.page.context.new_cdp_session(tab.page)
    await session.send("Performance.enable")
    for _ in range(ROUNDS):
        await tab.page.goto("about:blank")
        before = await _layouts(session)
        await action()
        tasks = await tab.page.evaluate("longTasks")
        counts.append(len(tasks))
        longest = max([longest, *tasks])
        layouts.append(await _layouts(session) - before)
    await session.detach()
    middle = sorted(counts)[ROUNDS // 2]
    return [
        Row(f"{name}: long tasks", middle, "tasks", max(counts), f"longest {longest:.0f} ms"),
        Row(f"{name}: layouts", sorted(layouts)[ROUNDS // 2], "layouts", max(layouts)),
    ]


async def _layouts(session: Any) -> float:
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return next(each["value"] for each in metrics if each["name"] == "LayoutCount")


async def _measure(folder: Path) -> list[Row]:
    model = ModelServer()
    async with fault_server.served(model.routes) as port:
        upstream = {"kind": "openai", "base_url": f"http://127.0.0.1:{port}/v1", "api_key": "sk-bench"}
        tables = {"gateway": {"upstreams": {"bench": upstream}}}
        async with (
            running_app(folder, probe=False, tables=tables) as app,
            served(app.asgi) as url,
            browser.browser() as chromium,
            browser.tab(chromium, app, url, Look(width=1440)) as tab,
        ):
            await tab.page.add_init_script(SCRIPT)
            await tab.open("/chat")
            await _ask(tab, "Begin")
            await tab.page.wait_for_url("**/chat/conv_*")
            await _end(tab)
            path = tab.page.url.removeprefix(url)
            rows = [of_samples("first token, server to page", await _first_tokens(tab, model), "ms")]
            await _fill(app, path.rpartition("/")[2])
            return [*rows, *(await _long_thread(tab, model, path))]


async def _long_thread(tab: Tab, model: ModelServer, path: str) -> list[Row]:
    """Measure a thread of many messages: its opening, an answer in it, and its earlier messages."""

    async def opened() -> None:
        await tab.open(path)
        await tab.page.wait_for_load_state("load")
        await _end(tab)

    async def answered() -> None:
        await opened()
        model.words = WORDS
        await _ask(tab, "Write")
        await tab.page.wait_for_selector("#active")
        await _end(tab)

    async def scrolled() -> None:
        await opened()
        while await tab.page.locator("#earlier").count():
            await tab.page.evaluate("document.querySelector('#earlier').click()")
            await tab.page.wait_for_selector("#earlier:not([aria-busy])", state="attached")

    return [
        *(await _counted(tab, f"{MESSAGES} messages, opened", opened)),
        *(await _counted(tab, f"{MESSAGES} messages, an answer of {WORDS} words", answered)),
        *(await _counted(tab, f"{MESSAGES} messages, all loaded", scrolled)),
    ]


def rows() -> list[Row]:
    """Return the measurements."""
    with tempfile.TemporaryDirectory() as folder:
        return [*calibration(), *asyncio.run(_measure(Path(folder)))]
