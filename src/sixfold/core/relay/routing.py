"""From the name that a caller gives to the servers that are asked, one after another."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

from sixfold import errors
from sixfold.core.relay.health import Health
from sixfold.core.relay.policy import Choice
from sixfold.core.relay.ports import Upstream

DEFAULT = ("default", "text-llm", "chat", "auto")  # the names of whatever this server talks with by default
UNLOCK = (
    "No model server is known here: run `sixfold engines add chat`, start Ollama, set OPENAI_API_KEY or "
    "ANTHROPIC_API_KEY, or name one in [gateway.upstreams] of sixfold.toml."
)


class Target:
    """One model of one server; its `name` is `NAME/model`."""

    __slots__ = ("model", "name", "upstream")

    def __init__(self, upstream: Upstream, model: str) -> None:
        self.upstream = upstream
        self.model = model
        self.name = f"{upstream.name}/{model}"

    def speaks(self, wire: str) -> bool:
        """Whether its server takes requests in a protocol as they are."""
        return self.upstream.wire(wire).name == wire


class Router:
    """Resolves aliases, `NAME/model` and bare model names."""

    def __init__(
        self,
        upstreams: Callable[[], Iterable[Upstream]],
        aliases: Mapping[str, tuple[Choice, ...]],
        health: Health,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._upstreams = upstreams
        self._aliases = aliases
        self._health = health
        self._draw = draw

    def upstreams(self) -> tuple[Upstream, ...]:
        """Every server that can be asked."""
        return tuple([upstream for upstream in self._upstreams() if upstream.ready])

    def resolve(self, name: str) -> tuple[Target, ...]:
        """The targets of a name in the order in which they are tried; raises `UnknownModel`.

        Those whose circuit is open come last. Of several servers that have a model the fastest is first.
        """
        found = self._targets(name)
        if not found and name in DEFAULT:
            found = self._default()
        if not found:
            if not self.upstreams():
                raise errors.EngineUnavailable(UNLOCK)
            raise errors.UnknownModel(f"There is no model {name[:100]!r} here; GET /v1/models lists them")
        if self._health.out and any(self._health.is_open(target.name) for target in found):
            return tuple(sorted(found, key=lambda target: self._health.is_open(target.name)))
        return found

    def draws(self, name: str) -> bool:
        """Whether whom a name leads to is drawn for each call."""
        choices = self._aliases.get(name)
        return choices is not None and choices[0].weight is not None

    def passes(self, name: str, wire: str) -> bool:
        """Whether a server that is known by this name takes requests in a protocol as they are."""
        return any(target.speaks(wire) for target in self._targets(name))

    def models(self) -> tuple[tuple[str, str], ...]:
        """Every name that can be asked for, and whose it is."""
        found = {alias: "sixfold" for alias in self._aliases if self._targets(alias)}
        several: dict[str, str] = {}
        for upstream in self.upstreams():
            for model in upstream.models():
                found.setdefault(f"{upstream.name}/{model}", upstream.name)
                several.setdefault(model, upstream.name)
        if self.upstreams() and "default" not in found:
            found["default"] = "sixfold"
        return tuple(sorted({**several, **found}.items()))

    def _targets(self, name: str) -> tuple[Target, ...]:
        if name in self._aliases:
            return self._of_alias(self._aliases[name])
        return self._direct(name)

    def _of_alias(self, choices: tuple[Choice, ...]) -> tuple[Target, ...]:
        ordered = _weighted(choices, self._draw) if choices[0].weight is not None else choices
        return tuple([target for choice in ordered for target in self._direct(choice.target)])

    def _direct(self, name: str) -> tuple[Target, ...]:
        prefix, slash, model = name.partition("/")
        if slash:
            for upstream in self._upstreams():
                if upstream.name == prefix and upstream.ready and upstream.serves(model):
                    return (Target(upstream, model),)
        found = [Target(upstream, name) for upstream in self.upstreams() if name in upstream.models()]
        if len(found) < 2:
            return tuple(found)
        return tuple(sorted(found, key=lambda target: self._health.standing(target.name).first_seconds))

    def _default(self) -> tuple[Target, ...]:
        """The first alias, else the first model of the first server that has one."""
        for alias in self._aliases:
            if found := self._targets(alias):
                return found
        for upstream in self.upstreams():
            if models := upstream.models():
                return (Target(upstream, models[0]),)
        return ()


def _weighted(choices: tuple[Choice, ...], draw: Callable[[], float]) -> tuple[Choice, ...]:
    """One drawn by weight, then the others by weight."""
    weights = [1.0 if choice.weight is None else choice.weight for choice in choices]
    point, first = draw() * sum(weights), 0
    for index, weight in enumerate(weights):
        point -= weight
        if point < 0:
            first = index
            break
    rest = [choice for index, choice in enumerate(choices) if index != first]
    return (choices[first], *sorted(rest, key=lambda choice: -(choice.weight or 0)))
