"""Which engines can run on this machine now: packages, weights, a server that answers, a key."""

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

RECORD = "sixfold.json"  # in each installed model's folder, written last by `engines add`
Probe = Callable[[EngineSpec], Awaitable[EngineStatus]]


class EngineAvailability:
    """What `choosing.Terms.standing` asks. `refresh` looks again at what may come and go.

    `key` gives the operator's key of a setting, or an empty string; `weights` is the folder of installed
    families; `probes` ask, by kind of engine, a server that has to answer.
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
        # By engine, or by kind of engine: who knows at any moment.
        self.told: dict[str, Callable[[], EngineStatus]] = {}
        looked = self._look_at_all()
        self._known = {
            name: _UNASKED if spec.kind in probes else looked[name] for name, spec in engines.items()
        }

    def admit(self, engines: Sequence[EngineSpec]) -> None:
        """Know engines that came later than the catalogue."""
        for engine in engines:
            self._engines[engine.name] = engine
            self._known[engine.name] = self._look(engine, _importable)

    def __call__(self, name: str) -> EngineStatus:
        """How an engine stood when it was last looked at."""
        spec = self._engines.get(name)
        told = None if spec is None else self.told.get(name) or self.told.get(spec.kind)
        if told is not None:
            return told()
        return self._known.get(name, _UNKNOWN)

    async def refresh(self) -> None:
        """Look at every engine again; servers are asked all at once."""
        looked = self._look_at_all()
        asked = [
            spec for name, spec in self._engines.items() if spec.kind in self.probes and looked[name].ready
        ]
        answers = await asyncio.gather(*(self.probes[spec.kind](spec) for spec in asked))
        self._known = looked | {spec.name: answer for spec, answer in zip(asked, answers, strict=True)}

    def _look_at_all(self) -> dict[str, EngineStatus]:
        # Most engines need the same few packages, and finding one takes longer than all else that is checked.
        importable = functools.cache(_importable)
        return {name: self._look(spec, importable) for name, spec in self._engines.items()}

    def _look(self, spec: EngineSpec, importable: Callable[[str], bool]) -> EngineStatus:
        missing = [package for package in spec.packages if not importable(package)]
        if missing:
            return EngineStatus(False, f"the package {missing[0]} is not installed")
        own = spec.options.get("base_url")  # a server of the operator's own may want no key
        if own and spec.setting:
            return EngineStatus(True, f"configured: {own}")
        if spec.setting and not self._key(spec.setting):
            return EngineStatus(False, f"{spec.setting.upper()} is not set")
        if spec.family:
            return self._installed(spec)
        return EngineStatus(
            True, f"{spec.setting.upper()} is set" if spec.setting else "comes with the program"
        )

    def _installed(self, spec: EngineSpec) -> EngineStatus:
        named = [
            name for name in (spec.options.get("source"), *spec.options.get("models", {}).values()) if name
        ]
        if named:
            try:
                _LOOKS.get(spec.family, _trusted)(spec.options)
            except EngineError as error:
                return EngineStatus(False, str(error))
            return EngineStatus(True, f"configured: {', '.join(map(str, named))}")
        folder = self._weights / spec.family
        found = sorted(path.parent.name for path in folder.glob(f"[!.]*/{RECORD}"))
        if not found:
            return EngineStatus(False, f"no weights are installed in {folder}")
        return EngineStatus(True, f"installed: {', '.join(found)}")


def _pictures(options: Mapping[str, Any]) -> None:
    """Raise `EngineError` where weights that options name are not there; the rest is the engine's own."""
    chosen = diffusers.parse({name: options[name] for name in _WHERE if name in options})
    for name in filter(None, (chosen.source, *chosen.models.values())):
        sources.find(name, chosen.weights, chosen.hub_cache)


def _trusted(_options: Mapping[str, Any]) -> None:
    """Weights that only their engine can judge."""


_WHERE = ("source", "models", "weights", "hub_cache")
_LOOKS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {"image": _pictures}
_UNKNOWN = EngineStatus(False, "no such engine")
_UNASKED = EngineStatus(False, "its server was not asked yet")


def _importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
