"""Availability of engines on this machine: their packages, weights, servers and keys."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.engines import EngineError
from sixfold.core.catalog.models import EngineSpec
from sixfold.engines.image.diffusers import options as diffusers
from sixfold.engines.image.diffusers import sources

# `engines add` writes this file last into the folder of an installed model.
RECORD = "sixfold.json"
Probe = Callable[[EngineSpec], Awaitable[EngineStatus]]


class EngineAvailability:
    """Statuses of engines by name, as of the last `refresh`.

    `key` returns the operator's key of a setting, or an empty string. `weights` is the folder of installed
    families. `probes` check, by kind of engine, the server that the engine needs.
    """

    def __init__(
        self,
        engines: Mapping[str, EngineSpec],
        key: Callable[[str], str],
        weights: Path,
        probes: Mapping[str, Probe],
    ) -> None:
        self._engines = dict(engines)
        self._key = key
        self._weights = weights
        self.probes = dict(probes)
        # Functions that know a status at any time, by engine or by kind of engine.
        self.status_sources: dict[str, Callable[[], EngineStatus]] = {}
        # Called after each refresh.
        self.on_refreshed: Callable[[], None] = lambda: None
        statuses = self._check_all()
        self._known = {
            name: _NOT_PROBED if spec.kind in probes else statuses[name] for name, spec in engines.items()
        }

    def admit(self, engines: Sequence[EngineSpec]) -> None:
        """Add engines that are not in the catalog."""
        for engine in engines:
            self._engines[engine.name] = engine
            self._known[engine.name] = self._check(engine, is_importable)

    def __call__(self, name: str) -> EngineStatus:
        spec = self._engines.get(name)
        source = None if spec is None else self.status_sources.get(name) or self.status_sources.get(spec.kind)
        if source is not None:
            return source()
        return self._known.get(name, _UNKNOWN)

    async def refresh(self) -> None:
        """Check all engines again; servers are probed concurrently."""
        statuses = self._check_all()
        probed = [
            spec for name, spec in self._engines.items() if spec.kind in self.probes and statuses[name].ready
        ]
        results = await asyncio.gather(*(self.probes[spec.kind](spec) for spec in probed))
        self._known = statuses | {spec.name: status for spec, status in zip(probed, results, strict=True)}
        self.on_refreshed()

    def _check_all(self) -> dict[str, EngineStatus]:
        # Most engines need the same few packages, and finding a package takes longer than all other checks.
        importable = functools.cache(is_importable)
        return {name: self._check(spec, importable) for name, spec in self._engines.items()}

    def _check(self, spec: EngineSpec, importable: Callable[[str], bool]) -> EngineStatus:
        missing = [package for package in spec.packages if not importable(package)]
        if missing:
            return EngineStatus(False, f"the package {missing[0]} is not installed")
        # A server that the operator configured may need no key.
        base_url = spec.options.get("base_url")
        if base_url and spec.setting:
            return EngineStatus(True, f"configured: {base_url}")
        if spec.setting and not self._key(spec.setting):
            return EngineStatus(False, f"{spec.setting.upper()} is not set")
        if spec.family:
            return self._installed(spec)
        return EngineStatus(
            True, f"{spec.setting.upper()} is set" if spec.setting else "included with Sixfold"
        )

    def _installed(self, spec: EngineSpec) -> EngineStatus:
        configured = [
            name for name in (spec.options.get("source"), *spec.options.get("models", {}).values()) if name
        ]
        if configured:
            try:
                _WEIGHT_CHECKS.get(spec.family, _accept)(spec.options)
            except EngineError as error:
                return EngineStatus(False, str(error))
            return EngineStatus(True, f"configured: {', '.join(map(str, configured))}")
        folder = self._weights / spec.family
        installed = sorted(path.parent.name for path in folder.glob(f"[!.]*/{RECORD}"))
        if not installed:
            return EngineStatus(False, f"no weights are installed in {folder}")
        return EngineStatus(True, f"installed: {', '.join(installed)}")


def _check_image_weights(options: Mapping[str, Any]) -> None:
    """Raise `EngineError` when configured weights are missing; the engine checks the other options."""
    parsed = diffusers.parse({name: options[name] for name in _WEIGHT_OPTIONS if name in options})
    for name in filter(None, (parsed.source, *parsed.models.values())):
        sources.find(name, parsed.weights, parsed.hub_cache)


def _accept(_options: Mapping[str, Any]) -> None:
    """Accept weights that only their engine can check."""


_WEIGHT_OPTIONS = ("source", "models", "weights", "hub_cache")
_WEIGHT_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {"image": _check_image_weights}
_UNKNOWN = EngineStatus(False, "unknown engine")
_NOT_PROBED = EngineStatus(False, "its server has not been probed yet")


def is_importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
