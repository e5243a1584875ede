"""The lines of `doctor` about GPUs that several programs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sixfold.core.humanize import size


def rows(gpus: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return a label and a text for each GPU: who holds its memory, and who waits."""
    return [(gpu["name"], _text(gpu)) for gpu in gpus]


def _text(gpu: dict[str, Any]) -> str:
    members = ", ".join(gpu["members"]) or "no program"
    if gpu["note"]:
        return f"{members} do not take turns: {gpu['note']}"
    parts = [f"{size(gpu['total_bytes'])}, shared by {members}"]
    parts += [_model(model) for model in gpu["models"]]
    if gpu["other_bytes"]:
        parts.append(f"other programs {size(gpu['other_bytes'])}")
    waiting = [f"{each['holder']} {each['model']} for {each['seconds']:g} s" for each in gpu["waiting"]]
    parts += [f"waiting: {', '.join(waiting)}"] if waiting else []
    return "; ".join(parts)


def _model(model: dict[str, Any]) -> str:
    name = " ".join(filter(None, (model["holder"], model["model"])))
    amount = "of unknown size" if model["size_bytes"] is None else size(model["size_bytes"])
    return f"{name} {amount} ({model['state']})"
