"""Metadata of hosted models: the rows of `data/hosted_models.toml`, which complete a provider's list."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources

import msgspec
from msgspec.structs import replace

from sixfold.core.gateway.capabilities import ALL, ServedModel
from sixfold.core.gateway.pricing.price_book import family


class HostedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table, with the URL and the date of the document that states its values."""

    as_of: str
    source: str
    capabilities: frozenset[str]
    context: int = 0
    max_output: int = 0
    dimensions: int = 0
    fixed_dimensions: bool = False


@functools.cache
def table() -> Mapping[str, HostedModel]:
    """Return the rows by family."""
    text = (resources.files("sixfold.data") / "hosted_models.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text)["models"], dict[str, HostedModel])


def completed(model: ServedModel, provider: str) -> ServedModel:
    """Return a provider's model, completed with values that the provider's list does not state.

    `provider` is the name in the price table. Capabilities that the provider states are kept.
    """
    row = _row(model.name, provider)
    if row is None:
        return model
    if not model.stated:
        model = replace(model, capabilities=row.capabilities, lacks=ALL - row.capabilities, stated=True)
    return replace(
        model,
        context=model.context or row.context,
        max_output=model.max_output or row.max_output,
        dimensions=model.dimensions or row.dimensions,
        fixed_dimensions=row.fixed_dimensions,
    )


@functools.lru_cache(4096)
def _row(model: str, provider: str) -> HostedModel | None:
    return table().get(family(model, provider, table()))
