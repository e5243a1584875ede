"""A running ComfyUI that makes films: our inputs become a graph for Wan or LTX, its pieces one film."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sixfold.clients.comfyui.events import Event, NodeProgress, NodesCached
from sixfold.clients.comfyui.server import ComfyFile
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.core.workers.remote_engines import HostServices
from sixfold.engines.audio.ambience import track
from sixfold.engines.providers import video_runs
from sixfold.engines.providers.comfyui import video_graphs as reels
from sixfold.engines.providers.comfyui.capabilities import NOT_THERE, InstalledModels
from sixfold.engines.providers.comfyui.engine import ComfyEngine
from sixfold.engines.providers.comfyui.video_graphs import IMAGE_TO_FILM, Graph, VideoModelChoice, VideoWish
from sixfold.engines.video import conform, dimensions, probe, task_parser
from sixfold.engines.video.task_parser import VideoTask

_MOST_BYTES = 512 * 2**20  # of one piece
_BEGUN, _SAMPLED = 0.02, 0.85  # of the progress
_WORDLESS = "the scene comes to life with gentle, natural movement"


class ComfyVideoEngine(ComfyEngine):
    """Films from words and from pictures on the operator's ComfyUI.

    `task` is `image-to-film` for models that begin with a picture where there is one, or `text-to-film`.
    `checkpoint` fixes the model's file; `limit_seconds` is kept by the server.
    """

    def __init__(
        self,
        outside: HostServices,
        *,
        url: str = "",
        task: str = IMAGE_TO_FILM,
        checkpoint: str = "",
        limit_seconds: float = 0,
    ) -> None:
        del limit_seconds
        super().__init__(outside, url=url, task=task)
        self._film = checkpoint

    async def _run(self, task: Task, context: Context, stock: InstalledModels) -> Result:
        if self._task in stock.missing:
            raise EngineError(stock.missing[self._task])
        choice = stock.films.best(self._task == IMAGE_TO_FILM, self._film)
        if choice is None:
            raise EngineError(NOT_THERE.format(self._film))
        order = task_parser.read(task.inputs)
        shape, picture = (16, 9), ""
        if video_runs.picture_of(task) is not None:
            given, source = await self._uploaded(task)
            shape, picture = (given.width, given.height), source.name
        size = order.size or dimensions.frame(order.resolution, dimensions.shape_of(order.aspect, shape))
        wish = _wish(task, order, choice, size, picture)
        graph = reels.film(stock.schemas, choice, wish)
        context.log(f"ComfyUI {stock.stats.version}: {choice.file}, {wish.frames} frames of {_by(wish.size)}")
        outputs = await self._server.run(graph.nodes, set(graph.outputs), _VideoWatch(context, graph))
        paths = [await self._fetched(outputs.get(node, {}), context, node) for node in graph.outputs]
        artifact = await _finished(tuple(paths), order, wish, size, context)
        context.progress(1.0)
        data: dict[str, Any] = {
            "seed": order.seed,
            "checkpoint": choice.file,
            "comfyui": stock.stats.version,
            "steps": wish.steps,
        }
        if order.sound:
            data["sound"] = track.mix_of(order.prompt).told
        return Result((artifact,), data, "full")

    async def _fetched(self, told: Mapping[str, Any], context: Context, node: str) -> Path:
        """One piece's file: whoever saved it names it in a list of its own."""
        named = next(_named(told), None)
        if named is None:
            raise EngineError("ComfyUI made no film.")
        path = context.scratch / f"piece-{node}"
        file = ComfyFile(*(str(named.get(part) or "") for part in ("filename", "subfolder", "type")))
        with path.open("wb") as target:
            await self._server.view(file, target, _MOST_BYTES)
        return path


def _named(told: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for rows in told.values():
        yield from (row for row in rows if isinstance(row, dict) and row.get("filename"))


def _wish(
    task: Task, order: VideoTask, choice: VideoModelChoice, size: tuple[int, int], picture: str
) -> VideoWish:
    """Frames by number at their own rate, by time at the model's."""
    family, numbered = choice.family, bool(task.inputs.get("num_frames"))
    rate = int(order.rate) if numbered else family.rate
    frames = order.frames if numbered else math.ceil(order.seconds * rate) + 1
    if not family.pictured and len(family.pieces(frames)) > 1:
        most = family.frames / rate
        raise EngineError(
            f"ComfyUI's {choice.file} makes {most:.3g} seconds at most: ask for a shorter film."
        )
    steps, cfg = task.inputs.get("num_inference_steps"), task.inputs.get("guidance_scale")
    own = family.cfg <= 1  # made for few steps, and blind to what is left out
    return VideoWish(
        prompt=order.prompt or _WORDLESS,
        negative=order.negative,
        seed=order.seed,
        frames=frames,
        rate=rate,
        size=family.size_for(size),
        steps=family.steps if own or not steps else int(steps),
        cfg=family.cfg if own or cfg is None else float(cfg),
        picture=picture,
    )


async def _finished(
    paths: tuple[Path, ...], order: VideoTask, wish: VideoWish, size: tuple[int, int], context: Context
) -> Artifact:
    try:
        path = await video_runs.counted(paths, order, size, context, wish.rate)
        found = probe.read(path)
    except (probe.NotAVideo, conform.VideoUnfit, UnusableInput) as error:
        raise EngineError("ComfyUI gave a film that cannot be read.") from error
    return Artifact(found.content_type, b"", found.info(), path)


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


class _VideoWatch:
    """Tells the context how far a run is: sampling is nearly all of it, piece after piece."""

    def __init__(self, context: Context, graph: Graph) -> None:
        self._context = context
        self._samplers = graph.samplers
        self._output = graph.outputs[-1]
        self._shown = _BEGUN

    def __call__(self, event: Event) -> None:
        match event:
            case NodeProgress(node, done, of) if node in self._samplers:
                share = (self._samplers.index(node) + done / of) / len(self._samplers)
                self._shown = max(self._shown, _BEGUN + (_SAMPLED - _BEGUN) * share)
            case NodesCached(nodes) if self._output in nodes:
                self._context.log("ComfyUI had made this already")
            case _:
                pass
        self._context.progress(self._shown)
