"""Resolve the model name of a request to the targets to try, in order."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from sixfold import errors
from sixfold.core.gateway.capabilities import CHAT, EMBEDDINGS, VISION, ServedModel, guess_model
from sixfold.core.gateway.chat import ImagePart
from sixfold.core.gateway.health import HealthTracker
from sixfold.core.gateway.policy import ModelAlias
from sixfold.core.gateway.ports import GatewayRequest, Upstream
from sixfold.core.gateway.usage import TokenRates

# Names for which a model is chosen by capability; `vision` is the default for conversations with images.
DEFAULT = ("default", "text-llm", CHAT, "auto", VISION)
UNLOCK = (
    "No model server is known here: run `sixfold engines add chat`, start Ollama, set OPENAI_API_KEY or "
    "ANTHROPIC_API_KEY, or name one in `[gateway.upstreams]` of sixfold.toml."
)
NO_CHAT = (
    "No model server here lists a chat model: pull one (`ollama pull qwen3`), run "
    "`sixfold engines add chat`, or set OPENAI_API_KEY or ANTHROPIC_API_KEY."
)
NO_VISION = (
    "No chat model here accepts images: pull one that does (`ollama pull qwen3-vl`), set OPENAI_API_KEY or "
    "ANTHROPIC_API_KEY, or name a model in [gateway.aliases] vision of sixfold.toml."
)
# Fields by which gateways behind this one (OpenRouter, LiteLLM, Portkey) choose another model, server or
# price than `model`, to which limits of keys and prices refer. They are not passed on.
_ROUTING_FIELDS = frozenset(
    {
        "api_base",
        "api_key",
        "api_version",
        "base_url",
        "config",
        "content_policy_fallbacks",
        "context_window_fallback_dict",
        "context_window_fallbacks",
        "custom_llm_provider",
        "deployment_id",
        "extra_body",
        "extra_headers",
        "fallbacks",
        "litellm_params",
        "model_list",
        "models",
        "plugins",
        "preset",
        "provider",
        "route",
        "service_tier",
        "user_config",
    }
)
# An image in the body of a request of any protocol; in text, the quotation marks would be escaped.
_IMAGE = re.compile(rb'"type"\s*:\s*"(?:image_url|image|input_image)"')
# Ollama adds this tag to names without one.
_LATEST = ":latest"


class RouteTarget:
    """One model of one server; its `name` is `NAME/model`."""

    __slots__ = ("model", "name", "upstream")

    def __init__(self, upstream: Upstream, model: str) -> None:
        self.upstream = upstream
        self.model = model
        self.name = f"{upstream.name}/{model}"

    def model_info(self) -> ServedModel:
        """Return the model's listing entry, or a guess by its name if the server does not list it."""
        for each in self.upstream.listing():
            if each.name in (self.model, self.model + _LATEST):
                return each
        return guess_model(self.model)

    def accepts(self, wire: str) -> bool:
        """Return whether the server accepts requests in a protocol without translation."""
        return self.upstream.wire(wire).name == wire


# Targets with their rates, in the order to try them.
RatedTargets = tuple[tuple[RouteTarget, TokenRates], ...]


class ModelRouter:
    """Resolves aliases, `NAME/model` and bare model names."""

    def __init__(
        self,
        servers: Callable[[], Iterable[Upstream]],
        aliases: Mapping[str, tuple[ModelAlias, ...]],
        health: HealthTracker,
        random_number: Callable[[], float] = random.random,
    ) -> None:
        self._servers = servers
        self._aliases = aliases
        self._health = health
        self._random = random_number

    def reconfigure(
        self, servers: Callable[[], Iterable[Upstream]], aliases: Mapping[str, tuple[ModelAlias, ...]]
    ) -> None:
        """Replace the servers and aliases."""
        self._servers, self._aliases = servers, aliases

    def servers(self) -> tuple[Upstream, ...]:
        """Return every server that can be called."""
        return tuple([upstream for upstream in self._servers() if upstream.ready])

    def resolve(self, name: str) -> tuple[RouteTarget, ...]:
        """Return the targets of a name in the order to try them; raises `UnknownModel`.

        Targets with an open circuit come last. If several servers have the model, local ones come first, then
        the fastest.
        """
        targets = self._targets(name)
        if not targets and name in DEFAULT:
            targets = self._default_targets(name)
        if not targets:
            raise self._unknown_model_error(name)
        if self._health.tripped and any(self._health.is_open(target.name) for target in targets):
            return tuple(sorted(targets, key=lambda target: self._health.is_open(target.name)))
        return targets

    def resolve_chat(self, name: str) -> tuple[RouteTarget, ...]:
        """Return the targets that accept conversations; raises `InvalidInput` if there are none."""
        targets = self.resolve(name)
        chat_targets = tuple([target for target in targets if _may_be_chat(target)])
        if chat_targets:
            return chat_targets
        model = targets[0].model_info()
        kind = "an embedding model" if EMBEDDINGS in model.capabilities else "not a chat model"
        instead = "send it to /v1/embeddings, or " if EMBEDDINGS in model.capabilities else ""
        raise errors.InvalidInput.of(
            "model", f"{name[:100]} is {kind}: {instead}choose a chat model from GET /v1/models"
        )

    def available(self, name: str) -> bool:
        """Return whether a `DEFAULT` name resolves to a model, or a server has not been listed yet."""
        if self._targets(name) or self._default_targets(name):
            return True
        return any(not upstream.discovered and not upstream.listing() for upstream in self.servers())

    def local_embeddings(self) -> str:
        """Return the full name of an embedding model on a local server, or an empty string."""
        for upstream, model in self._ranked():
            if upstream.local and EMBEDDINGS in model.capabilities:
                return RouteTarget(upstream, model.name.removesuffix(_LATEST)).name
        return ""

    def is_weighted(self, name: str) -> bool:
        """Return whether a name is an alias whose targets are chosen at random by weight."""
        choices = self._aliases.get(name)
        return choices is not None and choices[0].weight is not None

    def accepts_protocol(self, name: str, wire: str) -> bool:
        """Return whether a server of this name accepts requests in a protocol without translation."""
        return any(target.accepts(wire) for target in self._targets(name))

    def models(self) -> tuple[tuple[str, str], ...]:
        """Return every name that a request may use with its owner, sorted."""
        owners = {alias: "sixfold" for alias in self._aliases if self._targets(alias)}
        bare_names: dict[str, str] = {}
        for upstream in self.servers():
            for model in upstream.models():
                owners.setdefault(f"{upstream.name}/{model}", upstream.name)
                bare_names.setdefault(model, upstream.name)
        owners |= {name: "sixfold" for name in DEFAULT if name not in owners and self.available(name)}
        return tuple(sorted({**bare_names, **owners}.items()))

    def listing(self) -> Mapping[str, ServedModel]:
        """Return what is known of the model of each name of `models`."""
        found: dict[str, ServedModel] = {}
        for name in (*self._aliases, *DEFAULT):
            targets = self._targets(name) or (self._default_targets(name) if name in DEFAULT else ())
            if targets:
                found[name] = targets[0].model_info()
        for upstream in self.servers():
            for model in upstream.listing():
                found.setdefault(f"{upstream.name}/{model.name}", model)
                found.setdefault(model.name, model)
        return found

    def _targets(self, name: str) -> tuple[RouteTarget, ...]:
        if name in self._aliases:
            return self._alias_targets(self._aliases[name])
        return self._direct_targets(name)

    def _alias_targets(self, choices: tuple[ModelAlias, ...]) -> tuple[RouteTarget, ...]:
        ordered = _weighted(choices, self._random) if choices[0].weight is not None else choices
        return tuple([target for choice in ordered for target in self._direct_targets(choice.target)])

    def _direct_targets(self, name: str) -> tuple[RouteTarget, ...]:
        prefix, slash, model = name.partition("/")
        if slash and (upstream := self._find_server(prefix, model)) is not None:
            return (RouteTarget(upstream, model),)
        targets = [RouteTarget(upstream, name) for upstream in self.servers() if _lists(upstream, name)]
        if len(targets) < 2:
            return tuple(targets)
        # Local servers are free, so providers are used only if no local server responds.
        return tuple(
            sorted(
                targets,
                key=lambda target: (
                    not target.upstream.local,
                    self._health.get(target.name).first_seconds,
                ),
            )
        )

    def _find_server(self, prefix: str, model: str) -> Upstream | None:
        """Return the server of this name, else a discovered one of that kind on another host
        (`ollama@gpu-box`).
        """
        candidates = [each for each in self._servers() if each.ready and each.serves(model)]
        other_hosts = f"{prefix}@"
        return next(
            (each for each in candidates if each.name == prefix),
            next(
                (each for each in candidates if each.discovered and each.name.startswith(other_hosts)), None
            ),
        )

    def _default_targets(self, name: str) -> tuple[RouteTarget, ...]:
        """Return the targets of the first alias that has the capability, else of the first such model."""
        if name != VISION:
            return self._first_targets(_is_chat)
        return self._first_targets(_is_vision) or self._first_targets(_may_be_vision)

    def _first_targets(self, accepts: Callable[[Upstream, ServedModel], bool]) -> tuple[RouteTarget, ...]:
        for alias in self._aliases:
            targets = self._targets(alias)
            if accepted := tuple([each for each in targets if accepts(each.upstream, each.model_info())]):
                return accepted
        for upstream, model in self._ranked():
            if accepts(upstream, model):
                return (RouteTarget(upstream, model.name),)
        return ()

    def _ranked(self) -> list[tuple[Upstream, ServedModel]]:
        """Return all listed models: configured servers first, loaded models first within a server."""
        servers = self.servers()
        rows = [
            (len(servers) if upstream.discovered else place, not model.loaded, upstream, model)
            for place, upstream in enumerate(servers)
            for model in upstream.listing()
        ]
        return [(upstream, model) for *_, upstream, model in sorted(rows, key=lambda row: row[:2])]

    def _unknown_model_error(self, name: str) -> errors.SixfoldError:
        if not self.servers():
            return errors.EngineUnavailable(UNLOCK)
        if name in DEFAULT:
            return errors.EngineUnavailable(NO_VISION if name == VISION else NO_CHAT)
        if name in self._aliases:
            targets = " or ".join(choice.target for choice in self._aliases[name])
            return errors.UnknownModel(
                f"The alias {name[:100]!r} refers to {targets[:300]}, which is not available; "
                "GET /v1/models lists the models"
            )
        return errors.UnknownModel(f"The model {name[:100]!r} was not found; GET /v1/models lists the models")


def is_routing_field(name: str) -> bool:
    """Return whether a field of a request may select another model, server or price than `model`."""
    return name in _ROUTING_FIELDS


def remove_routing_fields(fields: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return the fields of a request without those that select another model, server or price."""
    for name in _ROUTING_FIELDS & fields.keys():
        del fields[name]
    return fields


def accepting(targets: RatedTargets, request: GatewayRequest) -> RatedTargets:
    """Return the targets that may accept a request; raises `InvalidInput` if it has an image and none does.

    A model that is only guessed by its name to be without vision is not excluded.
    """
    blind = [target for target, _ in targets if target.model_info().vision is False]
    if not blind or request.expected_usage is not None or not _has_image(request):
        return targets
    if len(blind) == len(targets):
        raise errors.InvalidInput.of(
            "model",
            f"{request.model[:100]} does not accept images: choose a model of GET /v1/models that has vision",
        )
    return tuple([rated for rated in targets if rated[0] not in blind])


def _has_image(request: GatewayRequest) -> bool:
    if request.body:
        return _IMAGE.search(request.body) is not None
    parts = (part for message in request.parse().messages for part in message.parts)
    return any(isinstance(part, ImagePart) for part in parts)


def _lists(upstream: Upstream, name: str) -> bool:
    models = upstream.models()
    return name in models or (":" not in name and name + _LATEST in models)


def _is_chat(_upstream: Upstream, model: ServedModel) -> bool:
    return model.chat


def _is_vision(_upstream: Upstream, model: ServedModel) -> bool:
    return model.vision is True


def _may_be_vision(upstream: Upstream, model: ServedModel) -> bool:
    """Return whether a configured server's model may accept images; a discovered server has to list that."""
    return model.vision is None and not upstream.discovered


def _may_be_chat(target: RouteTarget) -> bool:
    """Return whether the model may accept conversations; a guess by name alone does not exclude it."""
    model = target.model_info()
    return model.chat or not model.stated


def _weighted(choices: tuple[ModelAlias, ...], random_number: Callable[[], float]) -> tuple[ModelAlias, ...]:
    """Return the choices with one drawn by weight first and the others by descending weight."""
    weights = [1.0 if choice.weight is None else choice.weight for choice in choices]
    point, first = random_number() * sum(weights), 0
    for index, weight in enumerate(weights):
        point -= weight
        if point < 0:
            first = index
            break
    rest = [choice for index, choice in enumerate(choices) if index != first]
    return (choices[first], *sorted(rest, key=lambda choice: -(choice.weight or 0)))
