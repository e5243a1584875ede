"""The tasks of models, by which lists of models are grouped."""

from __future__ import annotations

from collections.abc import Iterable

from sixfold.core.catalog.models import Model

# In the order of lists.
TASKS = (
    "text to image",
    "image to image",
    "chat and text",
    "image to text",
    "video generation",
    "video editing",
    "text to speech",
    "speech to text",
    "speech to speech",
    "music and sound",
    "3D",
    "worlds and motion",
    "embeddings",
    "forecasting",
    "training",
    "workflows",
)


def by_task(models: Iterable[Model]) -> dict[str, list[Model]]:
    """Group models by task; models without a task are left out."""
    groups: dict[str, list[Model]] = {task: [] for task in TASKS}
    for model in models:
        if model.task:
            groups[model.task].append(model)
    return groups
