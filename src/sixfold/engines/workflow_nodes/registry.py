"""The registry of node classes of ComfyUI and Sixfold, with the functions of those that run here."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import resources

from sixfold.core.workflows import node_definitions
from sixfold.core.workflows.nodes import NodeSpec, Registry
from sixfold.core.workflows.ports import Run
from sixfold.engines.workflow_nodes import audio, hosted, images, latents, masks, sampling, video
from sixfold.engines.workflow_nodes import text as text_nodes

_FILES = ("core.toml", "sixfold.toml")
_INLINE: Mapping[str, Run] = text_nodes.RUNS
_THREADS: Mapping[str, Run] = {**images.RUNS, **masks.RUNS, **audio.RUNS, **video.RUNS, **hosted.RUNS}
_TERMS = frozenset({"SixfoldRecognizerLoader", "WanVaceToVideo", "WanAnimateToVideo"})


def read() -> Iterator[NodeSpec]:
    """Yield the node classes of the tables, without functions."""
    for name in _FILES:
        text = (resources.files("sixfold.data") / "nodes" / name).read_text("utf-8")
        yield from node_definitions.read(tomllib.loads(text))


@functools.cache
def registry() -> Registry:
    """Return all node classes; a class without `run` has only a schema."""
    return Registry(_with_function(spec) for spec in read())


def _with_function(spec: NodeSpec) -> NodeSpec:
    """Return the class with its `run` function, or unchanged without a function."""
    name = spec.class_type
    if name in _INLINE:
        return replace(spec, run=_INLINE[name])
    if name in _THREADS:
        return replace(spec, run=_THREADS[name], where="thread")
    if name in hosted.HOSTED:
        row = hosted.HOSTED[name]
        return replace(spec, run=row.run, where="await", estimate=row.estimate)
    if name in sampling.RUNS:
        return replace(spec, run=sampling.RUNS[name], where="await", estimate=sampling.estimate)
    if name in _TERMS or (spec.outputs and all(output.type in latents.SYMBOLIC for output in spec.outputs)):
        return replace(spec, run=latents.recorder(spec))
    return spec
