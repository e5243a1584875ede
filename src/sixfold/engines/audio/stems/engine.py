"""Engine of `stem-separator` without weights: two stems, or vocals, drums, bass and other."""

from __future__ import annotations

from collections.abc import Mapping

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.audio import files
from sixfold.engines.audio.files import Array
from sixfold.engines.audio.stems import masks

MAX_SECONDS = 15 * 60.0
STEMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "two": {"vocals": ("vocals",), "instrumental": ("drums", "bass", "other")},
    "four": {name: (name,) for name in ("vocals", "drums", "bass", "other")},
}
# Progress after reading and after separation.
_READ, _SEPARATED = 0.1, 0.8


class StemEngine:
    """Separates `audio` by stereo position and spectrum; the stems add up to the mix."""

    name = "stems"
    version = "2"

    def run(self, task: Task, context: Context) -> Result:
        """Return two or four files named by stem."""
        mix = read_mix(task)
        context.progress(_READ)
        context.log(f"{task.inputs['model']} needs weights; separating by position and motion instead")

        def progress(fraction: float) -> None:
            context.progress(_READ + (_SEPARATED - _READ) * fraction)

        stems = masks.separate(mix, STEMS[str(task.inputs["stems"])], progress)
        return Result(write_stems(stems, str(task.inputs["format"]), context))


def read_mix(task: Task) -> Array:
    """Return the task's audio; raises `EngineError` without a file."""
    path = task.files.get("audio")
    if path is None:
        raise EngineError("`audio` is required.")
    return files.read(path, MAX_SECONDS)


def write_stems(stems: Mapping[str, Array], format_: str, context: Context) -> tuple[Artifact, ...]:
    """Write each stem to a file named after the stem."""
    artifacts: list[Artifact] = []
    for count, (name, stem) in enumerate(stems.items(), start=1):
        artifacts.append(files.write(stem, format_, context.scratch / f"{name}.{format_}", name=name))
        context.progress(_SEPARATED + (0.99 - _SEPARATED) * count / len(stems))
    return tuple(artifacts)
