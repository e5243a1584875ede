"""Reports of the holders of each GPU's memory and the waiting calls, for `doctor` and the operator's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypedDict

from sixfold.core.catalog.models import EngineSpec
from sixfold.core.gpu import state as gpu_state
from sixfold.core.gpu.arbiter import GpuFigures
from sixfold.core.gpu.state import GpuState


class GpuModelSchema(TypedDict):
    """A model in the GPU's memory; `size_bytes` is None until it has been measured."""

    holder: str
    model: str
    size_bytes: int | None
    state: Literal["in use", "idle", "loading"]


class GpuWaitSchema(TypedDict):
    """A use of a model that waits for the GPU, and the seconds that it has waited."""

    holder: str
    model: str
    seconds: float


class GpuSchema(TypedDict):
    """A GPU that is shared by programs; `note` is the reason why they do not take turns, or empty."""

    name: str
    note: str
    total_bytes: int
    other_bytes: int
    members: Sequence[str]
    models: Sequence[GpuModelSchema]
    waiting: Sequence[GpuWaitSchema]


class GpuReports(Protocol):
    """The state of the GPUs that are shared by programs."""

    def reports(self) -> Sequence[GpuSchema]:
        """Return the holders of each GPU's memory."""
        ...

    def figures(self) -> Mapping[str, GpuFigures]: ...

    def switch_seconds(self, engine: EngineSpec) -> float:
        """Return the estimated seconds until the model of an engine is loaded in the GPU's memory again."""
        ...


def report(name: str, note: str, members: Sequence[str], state: GpuState, now: float) -> GpuSchema:
    """Return the report of one GPU; `now` is in seconds of the monotonic clock."""
    models: list[GpuModelSchema] = []
    in_use = {ticket.key: ticket for ticket in state.tickets if ticket.state != "waiting"}
    sizes = {resident.key: resident.size for resident in state.residents}
    for key in gpu_state.active(state):
        ticket = in_use[key]
        loading = ticket.state == "switching"
        size = sizes.get(key, ticket.size)
        models.append(_model(ticket.holder, ticket.model, size, "loading" if loading else "in use"))
    for each in sorted(state.residents, key=lambda resident: -resident.used_at):
        if each.key not in in_use:
            models.append(_model(each.holder, each.model, each.size, "idle"))
    return GpuSchema(
        name=name,
        note=note,
        total_bytes=state.total,
        other_bytes=state.others,
        members=members,
        models=models,
        waiting=[
            GpuWaitSchema(
                holder=ticket.holder, model=ticket.model, seconds=round(max(0.0, now - ticket.since), 1)
            )
            for ticket in state.tickets
            if ticket.state == "waiting"
        ],
    )


def _model(
    holder: str, model: str, size: int | None, state: Literal["in use", "idle", "loading"]
) -> GpuModelSchema:
    return GpuModelSchema(holder=holder, model=model, size_bytes=size, state=state)
