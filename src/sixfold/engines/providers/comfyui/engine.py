"""A running ComfyUI as an engine: our inputs become a graph for the models that it has."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.clients.comfyui.events import Event, NodeFinished, NodeProgress, NodesCached, NodeStarted
from sixfold.clients.comfyui.server import ComfyFile, ComfyServer
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.core.workers.remote_engines import HostServices
from sixfold.engines.providers.comfyui import capabilities as stocks
from sixfold.engines.providers.comfyui import image_graphs as graphs
from sixfold.engines.providers.comfyui import image_io as pictures
from sixfold.engines.providers.comfyui.capabilities import (
    DEFAULT_URL,
    IMAGE_TO_IMAGE,
    TEXT_TO_IMAGE,
    UPSCALE,
    FoundModels,
    InstalledModels,
    probe,
)
from sixfold.engines.providers.comfyui.image_graphs import GraphBuilder, ImageSource, ImageWish
from sixfold.engines.providers.comfyui.image_io import ImageFinish, InputImages

__all__ = ["ComfyEngine", "FoundModels", "probe"]

MAX_SIDE = 4096  # of a picture that was given
_MAX_UPSCALED_PIXELS = 40_000_000
_STOCK_SECONDS = 300.0
_DENOISE = 0.6
_GRAPHS = "1"  # another number whenever the same inputs become another graph


@dataclass(frozen=True, slots=True)
class _ImageRequest:
    """What a task comes to: a graph (of one picture of the batch alone, where asked), and how they leave."""

    plan: Callable[[int | None], GraphBuilder]
    finish: ImageFinish
    count: int = 1


class ComfyEngine:
    """Text to image, image to image and upscaling on the operator's ComfyUI.

    `task` fixes which; without it a task with words and no picture is text to image, one with both is
    image to image, and one without words upscaling. `checkpoint` fixes the model's file.
    """

    def __init__(self, outside: HostServices, *, url: str = "", task: str = "", checkpoint: str = "") -> None:
        self.name = "comfyui"
        self._outside = outside
        self._url = url
        self._known = ComfyServer(outside.client, url or DEFAULT_URL)
        self._task = task
        self._checkpoint = checkpoint
        self._stock: InstalledModels | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    @property
    def _server(self) -> ComfyServer:
        """The server at the engine's own address, else at the one where a ComfyUI was found."""
        found = "" if self._url or self._outside.comfyui is None else self._outside.comfyui.url
        if found and found != self._known.url:
            self._known, self._stock = ComfyServer(self._outside.client, found), None
        return self._known

    @property
    def version(self) -> str:
        """Our graphs, ComfyUI and the models that serve: what the same inputs' bytes hang on."""
        if self._stock is None:
            return _GRAPHS
        files = dict.fromkeys(PurePosixPath(file).stem for file in self._stock.serves.values())
        return "/".join((_GRAPHS, f"comfyui-{self._stock.stats.version}", *files))

    async def run(self, task: Task, context: Context) -> Result:
        """Run a task there; raises `EngineError` with one sentence."""
        try:
            return await self._run(task, context, await self._stocked())
        except comfyui_errors.ComfyRefused as refused:
            if not refused.unknown_value:
                raise
            # A model was taken away, or another came: once more with what is there now.
            self._stock = None
            return await self._run(task, context, await self._stocked())
        except comfyui_errors.ComfyNodeFailed as failed:
            self._stock = None
            if failed.class_type == "LoadImage":
                raise UnusableInput("ComfyUI could not read the picture.") from failed
            raise
        except comfyui_errors.ComfyError:
            self._stock = None
            raise

    async def close(self) -> None:
        """Nothing is held open between runs."""

    async def _run(self, task: Task, context: Context, stock: InstalledModels) -> Result:
        kind = self._task or _kind(task)
        if kind in stock.missing:
            raise EngineError(stock.missing[kind])
        order = await self._ordered(kind, task, stock)
        serving = stock.serves[kind]
        context.log(f"ComfyUI {stock.stats.version}: {serving}")
        try:
            artifacts = await self._made(order, None, _ImageWatch(context))
        except comfyui_errors.ComfyNodeFailed as failed:
            if order.count == 1 or not failed.memory or not stock.has("LatentFromBatch"):
                raise
            context.log(f"ComfyUI has no memory for {order.count} at once: one after the other")
            watch = _ImageWatch(context, order.count)
            artifacts = [one for place in range(order.count) for one in await self._made(order, place, watch)]
        context.progress(1.0)
        made: dict[str, Any] = {"checkpoint": serving, "comfyui": stock.stats.version}
        return Result(tuple(artifacts), made, "full")

    async def _made(self, order: _ImageRequest, alone: int | None, watch: _ImageWatch) -> list[Artifact]:
        plan = order.plan(alone)
        outputs = await self._server.run(plan.nodes, {plan.output}, watch.following(plan))
        named = outputs.get(plan.output, {}).get("images") or ()
        count = order.count if alone is None else 1
        if len(named) < count:
            raise EngineError(f"ComfyUI made {len(named)} of {count} pictures.")
        return [await self._artifact(image, order.finish) for image in named[:count]]

    async def _stocked(self) -> InstalledModels:
        """What the server has, read anew every five minutes and after errors."""
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._stock is None or now - self._read_at > _STOCK_SECONDS:
                stock = await stocks.read(self._server)
                self._stock = stock.pinned(self._checkpoint) if self._checkpoint else stock
                self._read_at = now
            return self._stock

    async def _ordered(self, kind: str, task: Task, stock: InstalledModels) -> _ImageRequest:
        if kind == TEXT_TO_IMAGE:
            wish = _wish(task, _number(task, "width", 1024), _number(task, "height", 1024))
            words = partial(graphs.text_to_image, stock, wish)
            return _ImageRequest(words, _finish(task, wish.width, wish.height), wish.count)
        given, source = await self._uploaded(task)
        if kind == UPSCALE:
            width, height = _upscaled_size(task, given)
            larger = graphs.upscale(stock, source, width, height)
            return _ImageRequest(lambda _alone: larger, _finish(task, width, height))
        scale = min(1.0, MAX_SIDE / max(given.width, given.height))
        wish = _wish(task, max(1, round(given.width * scale)), max(1, round(given.height * scale)))
        strength = task.inputs.get("strength")
        denoise = _DENOISE if strength is None else min(1.0, max(0.05, float(strength)))
        repainted = partial(graphs.image_to_image, stock, wish, source, denoise)
        return _ImageRequest(repainted, _finish(task, wish.width, wish.height, crop=False), wish.count)

    async def _uploaded(self, task: Task) -> tuple[InputImages, ImageSource]:
        path = task.files.get("source_image_url") or next(iter(task.files.values()), None)
        if path is None:
            raise UnusableInput("This needs a source image.")
        given = await asyncio.to_thread(pictures.given, path)
        file = await self._server.upload(given.name, given.data, given.content_type)
        return given, ImageSource(file.annotated, given.alpha)

    async def _artifact(self, image: Mapping[str, Any], finish: ImageFinish) -> Artifact:
        made = io.BytesIO()
        file = ComfyFile(*(str(image.get(part) or "") for part in ("filename", "subfolder", "type")))
        await self._server.view(file, made, pictures.MAX_BYTES)
        return await asyncio.to_thread(pictures.finished, made.getvalue(), finish)


class _ImageWatch:
    """Tells the context how far a run is: sampling is nearly all of it, and it never goes back.

    A run may be made of several `parts`, one after the other.
    """

    def __init__(self, context: Context, parts: int = 1) -> None:
        self._context = context
        self._parts = parts
        self._part = -1
        self._plan = GraphBuilder()
        self._started = 0
        self._shown = 0.0

    def following(self, plan: GraphBuilder) -> _ImageWatch:
        """Itself, for the next part."""
        self._plan, self._started = plan, 0
        self._part += 1
        return self

    def __call__(self, event: Event) -> None:
        match event:
            case NodeProgress(node, done, of) if node == self._plan.sampler or not self._plan.sampler:
                self._show(0.1 + 0.8 * done / of)
            case NodeStarted():
                self._started += 1
                self._show(0.1 * self._started / len(self._plan.nodes))
            case NodeFinished():
                self._show(0.95)
            case NodesCached(nodes) if self._plan.output in nodes:
                self._context.log("ComfyUI had made this already")
            case _:
                pass

    def _show(self, fraction: float) -> None:
        whole = (self._part + min(1.0, fraction)) / self._parts
        self._shown = max(self._shown, whole)
        self._context.progress(self._shown)


def _kind(task: Task) -> str:
    if not task.files:
        return TEXT_TO_IMAGE
    return IMAGE_TO_IMAGE if _words(task) else UPSCALE


def _words(task: Task) -> str:
    return str(task.inputs.get("style_prompt") or task.inputs.get("prompt") or "")


def _wish(task: Task, width: int, height: int) -> ImageWish:
    look = stocks.document()["looks"].get(task.model, "{}")
    return ImageWish(
        look.replace("{}", _words(task)),
        str(task.inputs.get("negative_prompt") or ""),
        width,
        height,
        _number(task, "seed", 0) % 2**63,
        max(1, _number(task, "num_images", 1)),
    )


def _finish(task: Task, width: int, height: int, *, crop: bool = True) -> ImageFinish:
    format_ = str(task.inputs.get("format") or "png").lower().replace("jpg", "jpeg")
    return ImageFinish(width, height, format_, min(100, max(1, _number(task, "quality", 90))), crop)


def _number(task: Task, name: str, default: int) -> int:
    value = task.inputs.get(name)
    return default if value is None else int(value)


def _upscaled_size(task: Task, given: InputImages) -> tuple[int, int]:
    """By `scale` (2 where nothing is said), or to `width` and `height`, of which one may be left out."""
    scale = float(task.inputs.get("scale") or 2)
    width, height = _number(task, "width", 0), _number(task, "height", 0)
    if width or height:
        scale = max(width / given.width, height / given.height)
    across, down = width or round(given.width * scale), height or round(given.height * scale)
    if across < 1 or down < 1 or across * down > _MAX_UPSCALED_PIXELS:
        most = _MAX_UPSCALED_PIXELS // 1_000_000
        raise UnusableInput(
            f"The enlarged picture would have {across} x {down} pixels; at most {most} megapixels."
        )
    return across, down
