"""The engine: words in, a GLB of parametric bodies out, without weights."""

from __future__ import annotations

from sixfold.core.catalog.engines import Artifact, Context, Result, Task
from sixfold.engines.three_d import glb, prompt_parser


class TextTo3DEngine:
    """Builds what `prompt` names; what it does not know becomes an abstract study in its colours."""

    name = "bodies"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """A GLB that stands on the ground."""
        things = prompt_parser.read(str(task.inputs.get("prompt") or ""))
        parts = prompt_parser.built(things, int(task.inputs.get("seed") or 0))
        context.progress(0.8)
        names = [thing.name or "study" for thing in things]
        info = {
            "vertices": sum(len(part.positions) for part in parts),
            "faces": sum(len(part.faces) for part in parts),
        }
        data = glb.encode(parts, " and ".join(names))
        return Result((Artifact("model/gltf-binary", data, info),), {"things": names}, "preview")
