"""Measure the pages in Chromium: time from a token to its paint, long tasks in a long chat, page weights.

.venv/bin/python -m bench pages; SIXFOLD_BENCH_PAGES_ANSWERS (15) is the number of answers. Server and
browser share the cores of the machine, so other work on it delays paints.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import modelserver
from bench.gateway import _process, free_port, process_cpu
from bench.reporting import Row, calibration, of_samples
from tests.api import browser

TITLE = "Pages"
ANSWERS = int(os.environ.get("SIXFOLD_BENCH_PAGES_ANSWERS", "15"))
MESSAGES, ITEMS_AT_ONCE = 500, 20
AIM_MS, LONG_TASK_MS = 100, 50
# The delay of the model server's first token, by which time the page is connected.
_THINKING_SECONDS = 0.3
_PAGES = (
    "/",
    "/catalog",
    "/catalog/ra1",
    "/chat",
    "/workflows/stylized-text-to-image",
    "/predictions",
    "/memory",
    "/live/world-model",
    "/account/usage",
    "/admin",
    "/docs",
)
_CONFIG = """[gateway.upstreams.m]
kind = "openai"
base_url = "http://127.0.0.1:{port}/v1"
api_key = "k"
models = ["m"]
[gateway.prices."m"]
input_per_million_usd = "0.1"
output_per_million_usd = "0.4"
"""
# Resolves with the time after the frame that shows the first text of an answer, in ms since the epoch.
_PAINTED = """() => { window.painted = new Promise((done) => {
  const watcher = new MutationObserver(() => {
    const parts = [...document.querySelectorAll("#active :is([data-open], [data-growing])")];
    if (!parts.some((part) => part.textContent)) return;
    watcher.disconnect();
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => done(performance.timeOrigin + performance.now());
      channel.port2.postMessage(0);
    });
  });
  watcher.observe(document.getElementById("last"), { subtree: true, childList: true, characterData: true });
}); }"""
# Seconds from a change by a script to the end of its frame.
_FRAME = """() => new Promise((done) => {
  const began = performance.now();
  document.getElementById("spoken").textContent = String(began);
  requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done((performance.now() - began) / 1000);
    channel.port2.postMessage(0);
  });
})"""
_LONG_TASKS = """() => { window.tasks = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: "longtask", buffered: true });
}"""
_PARAGRAPH = "The **lighthouse** stands on the north cape since 1893, and `lamp.py` oils its lamp. "
_ANSWER = (
    f"## Part\n\n{_PARAGRAPH * 3}\n\n```python\ndef area(width, length):\n    return width * length\n```\n"
)


@dataclass
class _Model:
    """A model server; `sent` contains the times of first tokens, in seconds since the epoch."""

    sent: list[float] = field(default_factory=list[float])

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request with a stream, and close the connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            await reader.readexactly(length)
            writer.write(modelserver.HEAD)
            await asyncio.sleep(_THINKING_SECONDS)
            self.sent.append(time.time())
            for event in modelserver.STREAM:
                writer.write(event)
                await asyncio.sleep(0.01)
            await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def _model_server() -> AsyncIterator[tuple[_Model, int]]:
    model = _Model()
    server = await asyncio.start_server(model.answer, "127.0.0.1", 0)
    async with server:
        yield model, server.sockets[0].getsockname()[1]


def _post(url: str, key: str, document: dict[str, Any]) -> None:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(document).encode(), headers)  # noqa: S310 - a fixed http URL
    with urllib.request.urlopen(request) as response:  # noqa: S310 - the same
        response.read()


async def _ask(page: Any, model: _Model) -> float:
    """Return the seconds from a first token to its paint."""
    await page.evaluate(_PAINTED)
    await page.fill("#text", "Count")
    await page.keyboard.press("Enter")
    painted = await page.evaluate("window.painted")
    await page.wait_for_selector("#last .answer .cost")
    return float(painted) / 1000 - model.sent[-1]


async def _chat(page: Any, url: str, key: str, model: _Model) -> list[Row]:
    """Return the rows of a chat: the paints of a short chat, and the long tasks of a long chat."""
    await page.goto(f"{url}/chat")
    await page.fill("#text", "Count")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#last .answer .cost, #messages .cost")
    frames = [await page.evaluate(_FRAME) for _ in range(30)]
    short = [await _ask(page, model) for _ in range(ANSWERS)]
    items = [
        {"type": "message", "role": "assistant" if number % 2 else "user", "content": f"{number} {_ANSWER}"}
        for number in range(MESSAGES)
    ]
    path = f"{url}/v1/conversations/{page.url.partition('/chat/')[2].partition('?')[0]}/items"
    for first in range(0, MESSAGES, ITEMS_AT_ONCE):
        await asyncio.to_thread(_post, path, key, {"items": items[first : first + ITEMS_AT_ONCE]})
    await page.goto(page.url)
    await page.evaluate(_LONG_TASKS)
    shown = await page.locator("#messages article").count()
    opening = [ms for ms in await page.evaluate("window.tasks") if ms > LONG_TASK_MS]
    long = [await _ask(page, model) for _ in range(ANSWERS)]
    tasks = [ms for ms in await page.evaluate("window.tasks") if ms > LONG_TASK_MS][len(opening) :]
    frame = statistics.median(frames)
    return [
        of_samples("calibration: a change by a script to the end of its frame", frames, "ms"),
        of_samples("first token at the server to its paint", short, "ms", f"aim {AIM_MS}"),
        Row("the same, in frames of the calibration", statistics.median(short) / frame, "times"),
        of_samples(
            f"first token to its paint, in a chat of {MESSAGES} messages", long, "ms", f"{shown} are shown"
        ),
        Row(
            f"long tasks while a chat of {MESSAGES} messages opens",
            len(opening),
            "tasks",
            note=f"over {LONG_TASK_MS} ms; the longest {max(opening, default=0):.0f} ms",
        ),
        Row(
            f"long tasks in {ANSWERS} answers to it",
            len(tasks),
            "tasks",
            note=f"aim 0; the longest {max(tasks, default=0):.0f} ms",
        ),
    ]


async def _weights(page: Any, url: str) -> list[Row]:
    """Return the bytes that pages transfer with an empty cache, headers excluded."""
    session = await page.context.new_cdp_session(page)
    await session.send("Network.enable")
    await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    found: list[Row] = []
    for path in _PAGES:
        sizes.clear()
        await page.goto(url + path, wait_until="networkidle")
        found.append(Row(f"{path}, all its files", sum(sizes) / 1000, "KB", note="aim 350"))
    return found


async def _sign_in_link(environ: dict[str, str]) -> str:
    """Return the server's sign-in link after its start."""
    command = [sys.executable, "-m", "sixfold.cli.main", "open", "--json"]
    async with asyncio.timeout(90):
        while True:
            opening = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **environ},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            output, _ = await opening.communicate()
            if opening.returncode == 0:
                return str(json.loads(output)["url"])


async def _measure(folder: Path) -> list[Row]:
    port = free_port()
    data = folder / "data"
    data.mkdir()
    environ = {"SIXFOLD_DATA_DIR": str(data), "SIXFOLD_PROBE": "0", "SIXFOLD_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "sixfold.cli.main", "serve", "--port", str(port)]
    async with _model_server() as (model, model_port), browser.browser() as chromium:
        (data / "sixfold.toml").write_text(_CONFIG.format(port=model_port), "utf-8")
        with _process(command, 0, **environ) as process:
            link = await _sign_in_link(environ)
            page = await (await chromium.new_context(viewport={"width": 1440, "height": 900})).new_page()
            await page.goto(link)
            began = process_cpu(process.pid)
            url, key = f"http://127.0.0.1:{port}", (data / "local.key").read_text("utf-8").strip()
            found = await _chat(page, url, key, model)
            seconds = process_cpu(process.pid) - began
            weights = await _weights(page, url)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    found.append(Row("server CPU for these answers", seconds, "s", note=load))
    return [*found, *weights]


def rows() -> list[Row]:
    """Measure the pages; without Chromium, return only the calibration."""
    if browser.CHROMIUM is None:
        return [*calibration(), Row("skipped", 0, "", note="Chromium was not found on this machine")]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        return [*calibration(), *asyncio.run(_measure(Path(folder)))]
