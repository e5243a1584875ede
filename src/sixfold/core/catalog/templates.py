"""Templates: models hired with hardware by the time of their runs, and what a caller is told of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sixfold import errors
from sixfold.core import money
from sixfold.core.catalog import hardware as kinds
from sixfold.core.catalog.hardware import Shelf
from sixfold.core.catalog.metering import HardwareRate


@dataclass(frozen=True, slots=True)
class Template:
    """What is known of a template beside its inputs, which are those of the model of the same name.

    None where the catalogue of templates says nothing. The hour's price is for its own hardware.
    """

    name: str
    hardware: str
    hour_micros: int
    repository: str
    license: str
    upstream: str | None = None
    category: str | None = None
    idle_seconds: int | None = None
    min_vram_gb: int | None = None
    disk_gb: int | None = None
    serverless: bool = False
    serverless_docker_args: str | None = None
    verified: bool = False
    tags: tuple[str, ...] = ()
    session: bool = False
    runtime: str | None = None
    api_name: str | None = None
    space_id: str | None = None
    docker_args: str | None = None
    model_variants: tuple[str, ...] = ()
    default_model_variant: str | None = None

    def variant(self, wanted: str | None) -> str | None:
        """The variant to run, None where it has none; raises `InvalidInput` for one that it has not."""
        if wanted is None or wanted in self.model_variants:
            return wanted or self.default_model_variant
        known = f"is one of {', '.join(self.model_variants)}" if self.model_variants else "has none to choose"
        sentence = f"There is no variant {wanted}: {self.name} {known}"
        raise errors.InvalidInput([errors.Problem("variant", sentence, "enum")])


class Templates:
    """Every template by its name; also the rates by which time on hardware is paid (`metering.Rates`)."""

    def __init__(self, rows: Mapping[str, Mapping[str, Any]], shelf: Shelf) -> None:
        self._templates = {name: _template(name, row) for name, row in rows.items()}
        self.hardware = shelf
        for template in self:
            _ = shelf[template.hardware]

    def __iter__(self) -> Iterator[Template]:
        return iter(self._templates.values())

    def __contains__(self, name: object) -> bool:
        return name in self._templates

    def __getitem__(self, name: str) -> Template:
        """Raises `NotFound` for another name."""
        try:
            return self._templates[name]
        except KeyError:
            raise errors.NotFound(f"There is no template {name}") from None

    def idle_seconds(self, model: str) -> float | None:
        """How long a worker may idle that ran `model` last; None where that is not said."""
        template = self._templates.get(model)
        return None if template is None else template.idle_seconds

    def hardware_rate(self, model: str, hardware: str | None) -> HardwareRate:
        """What an hour of `model` costs: on its own hardware as its template says, elsewhere by the hardware.

        Raises `InvalidInput` for unknown hardware, and for less memory than the template needs. What is paid
        by time and is no template runs on the default hardware.
        """
        template = self._templates.get(model)
        own = kinds.DEFAULT if template is None else template.hardware
        kind = self.hardware[hardware or own]
        if template is None:
            return HardwareRate(kind.id, kind.hour_micros)
        if kind.id == own:
            return HardwareRate(own, template.hour_micros)
        if kind.vram_gb < (template.min_vram_gb or 0):
            sentence = f"{model} needs {template.min_vram_gb} GB of memory; {kind.id} has {kind.vram_gb} GB"
            raise errors.InvalidInput([errors.Problem("hardware", sentence, "out_of_range")])
        return HardwareRate(kind.id, kind.hour_micros)


def _template(name: str, row: Mapping[str, Any]) -> Template:
    facts = dict(row)
    hour_micros = money.parse_usd(str(facts.pop("price_hour")))
    for listed in ("tags", "model_variants"):
        facts[listed] = tuple(facts.get(listed, ()))
    return Template(name=name, hour_micros=hour_micros, **facts)
