"""Templates: models that are charged by hardware and run time, with their public metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.catalog import hardware as kinds
from sixfold.core.catalog.hardware import HardwareCatalog
from sixfold.core.catalog.metering import HardwareRate


class Template(msgspec.Struct, frozen=True):
    """The metadata of a template; its inputs are those of the model with the same name.

    Fields are None if the template file does not set them. `hour_micros` is the price per hour on its default
    hardware, in micro-dollars.
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

    def variant(self, name: str | None) -> str | None:
        """Return the variant to run, or None if there are no variants; raises `InvalidInput`."""
        if name is None or name in self.model_variants:
            return name or self.default_model_variant
        requirement = (
            f"must be one of {', '.join(self.model_variants)}" if self.model_variants else "is not supported"
        )
        sentence = f"variant {requirement} for {self.name} (got {name})"
        raise errors.InvalidInput([errors.Problem("variant", sentence, "enum")])


class Templates:
    """All templates by name, and the hardware rates (`metering.RunRates`)."""

    def __init__(self, rows: Mapping[str, Mapping[str, Any]], hardware: HardwareCatalog) -> None:
        self._templates = {name: _template(name, row) for name, row in rows.items()}
        self.hardware = hardware
        for template in self:
            _ = hardware[template.hardware]

    def __iter__(self) -> Iterator[Template]:
        return iter(self._templates.values())

    def __contains__(self, name: object) -> bool:
        return name in self._templates

    def __getitem__(self, name: str) -> Template:
        """Return the template with this name; raises `NotFound`."""
        try:
            return self._templates[name]
        except KeyError:
            raise errors.NotFound(f"Template {name} not found") from None

    def idle_seconds(self, model: str) -> float | None:
        """Return the seconds that a worker that last ran `model` may be idle; None if not set."""
        template = self._templates.get(model)
        return None if template is None else template.idle_seconds

    def hardware_rate(self, model: str, hardware: str | None) -> HardwareRate:
        """Return the hourly rate of `model`: the template's on its default hardware, else the hardware's.

        Raises `InvalidInput` for unknown hardware, and for hardware with less memory than the template needs.
        Models without a template run on the default hardware.
        """
        template = self._templates.get(model)
        default = kinds.DEFAULT if template is None else template.hardware
        kind = self.hardware[hardware or default]
        if template is None:
            return HardwareRate(kind.id, kind.hour_micros)
        if kind.id == default:
            return HardwareRate(default, template.hour_micros)
        if kind.vram_gb < (template.min_vram_gb or 0):
            sentence = f"{model} needs {template.min_vram_gb} GB of memory; {kind.id} has {kind.vram_gb} GB"
            raise errors.InvalidInput([errors.Problem("hardware", sentence, "out_of_range")])
        return HardwareRate(kind.id, kind.hour_micros)

    def is_charged_by_time(self, model: str) -> bool:
        """Return whether the model has a template; the prices of other models may include a provider's."""
        return model in self._templates


def _template(name: str, row: Mapping[str, Any]) -> Template:
    fields = dict(row)
    hour_micros = money.parse_usd(str(fields.pop("price_hour")))
    for field in ("tags", "model_variants"):
        fields[field] = tuple(fields.get(field, ()))
    return Template(name=name, hour_micros=hour_micros, **fields)
