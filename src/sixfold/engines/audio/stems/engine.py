"""The engine of `stem-separator` without weights: voice and the rest, or voice, drums, bass and other."""

from __future__ import annotations

from collections.abc import Mapping

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.audio import files
from sixfold.engines.audio.files import Array
from sixfold.engines.audio.stems import masks

MOST_SECONDS = 15 * 60.0
STEMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "two": {"vocals": ("vocals",), "instrumental": ("drums", "bass", "other")},
    "four": {name: (name,) for name in ("vocals", "drums", "bass", "other")},
}
_READ, _APART = 0.1, 0.8  # of the progress


class StemEngine:
    """Takes `audio` apart by where and how it sounds; what it gives adds up to the mix."""

    name = "stems"
    version = "2"

    def run(self, task: Task, context: Context) -> Result:
        """Two or four named files."""
        mix = heard(task)
        context.progress(_READ)
        context.log(f"{task.inputs['model']} needs weights: place and movement tell the parts, karaoke grade")

        def step(part: float) -> None:
            context.progress(_READ + (_APART - _READ) * part)

        found = masks.apart(mix, STEMS[str(task.inputs["stems"])], step)
        return Result(finished(found, str(task.inputs["format"]), context))


def heard(task: Task) -> Array:
    """The task's sound."""
    path = task.files.get("audio")
    if path is None:
        raise EngineError("Taking a mix apart needs a sound.")
    return files.read(path, MOST_SECONDS)


def finished(found: Mapping[str, Array], format_: str, context: Context) -> tuple[Artifact, ...]:
    """Each part as a file of its own name."""
    made: list[Artifact] = []
    for count, (name, part) in enumerate(found.items(), start=1):
        made.append(files.written(part, format_, context.scratch / f"{name}.{format_}", name=name))
        context.progress(_APART + (0.99 - _APART) * count / len(found))
    return tuple(made)
