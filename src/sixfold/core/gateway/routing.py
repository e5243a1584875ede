"""Resolution of a request's model name to the targets to try, in order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from sixfold import errors
from sixfold.core import reachability
from sixfold.core.gateway.capabilities import CHAT, EMBEDDINGS, LATEST, VISION, ServedModel
from sixfold.core.gateway.health import HealthTracker
from sixfold.core.gateway.policy import ModelAlias
from sixfold.core.gateway.ports import Upstream
from sixfold.core.gateway.pricing.token_rates import TokenRates

# Names for which a model is chosen by capability; `vision` is the default for conversations with images.
DEFAULT = ("default", "text-llm", CHAT, "auto", VISION)
UNLOCK = (
    "No model server is configured: run `sixfold engines add chat`, start Ollama, set OPENAI_API_KEY or "
    "ANTHROPIC_API_KEY, or name one in `[gateway.upstreams]` of sixfold.toml."
)
NO_CHAT = (
    "The model servers do not list a chat model: pull one (`ollama pull qwen3`), run "
    "`sixfold engines add chat`, or set OPENAI_API_KEY or ANTHROPIC_API_KEY."
)
NO_VISION = (
    "No available chat model accepts images: pull one that does (`ollama pull qwen3-vl`), set "
    "OPENAI_API_KEY or "
    "ANTHROPIC_API_KEY, or name a model in [gateway.aliases] vision of sixfold.toml."
)
# Fields with which gateways behind this one (OpenRouter, LiteLLM, Portkey) select a model, server or price
# other than `model`, to which prices and the limits of keys refer. They are not forwarded.
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
# Fields that set the number or length of answers at some servers and are not read here: those of llama.cpp
# and KoboldCpp take precedence over `max_tokens` and `n`.
_OUTPUT_FIELDS = frozenset({"max_length", "max_new_tokens", "n_cmpl", "n_predict", "num_predict"})
_REMOVED_FIELDS = _ROUTING_FIELDS | _OUTPUT_FIELDS
# Fields that are read here, for which servers in Go, such as Ollama, also accept other spellings
# (`Max_Tokens`).
_READ_FIELDS = frozenset(
    {
        *(
            "best_of",
            "max_completion_tokens",
            "max_output_tokens",
            "max_tokens",
            "max_tool_calls",
            "model",
            "n",
        ),
        *("prompt", "stream", "stream_options", "tools", "web_search_options"),
    }
)


class RouteTarget:
    """One model of one server; its `name` is `NAME/model`.

    `shared` targets are local servers with the same model; the least busy one is called first.
    """

    __slots__ = ("model", "name", "shared", "upstream")

    def __init__(self, upstream: Upstream, model: str, *, shared: bool = False) -> None:
        self.upstream = upstream
        self.model = model
        self.shared = shared
        self.name = f"{upstream.name}/{model}"

    def model_info(self) -> ServedModel:
        """Return the known facts about the model."""
        return self.upstream.describe(self.model)

    def accepts(self, wire: str) -> bool:
        """Return whether the server accepts requests in a protocol without translation."""
        return self.upstream.wire(wire).name == wire


# Targets with their rates, in the order in which they are tried.
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
        # Describes a model that is not of a model server, and the route that runs it; empty for other names.
        self.describe_other: Callable[[str], str] = lambda _name: ""

    def reconfigure(
        self, servers: Callable[[], Iterable[Upstream]], aliases: Mapping[str, tuple[ModelAlias, ...]]
    ) -> None:
        self._servers, self._aliases = servers, aliases

    def servers(self) -> tuple[Upstream, ...]:
        """The servers that can be called."""
        return tuple([upstream for upstream in self._servers() if upstream.ready])

    def resolve(self, name: str) -> tuple[RouteTarget, ...]:
        """Return the targets of a name in the order to try them; raises `UnknownModel`.

        Targets with an open circuit or a server that does not respond come last. If more than one server has
        the model, local servers come first, then the fastest.
        """
        targets = self._targets(name)
        if not targets and name in DEFAULT:
            targets = self._default_targets(name)
        if not targets:
            raise self._unknown_model_error(name)
        if len(targets) > 1 and any(self._is_down(target) for target in targets):
            return tuple(sorted(targets, key=self._is_down))
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

    def resolve_protocol(self, name: str, wire: str) -> tuple[RouteTarget, ...]:
        """Return the targets that accept a protocol; raises `InvalidInput` if there are none."""
        targets = tuple([target for target in self.resolve(name) if target.accepts(wire)])
        if not targets:
            raise errors.InvalidInput.of(
                "model",
                f"The server of {name[:100]} does not support {wire}: choose a model of another server",
            )
        return targets

    def available(self, name: str) -> bool:
        """Return whether a `DEFAULT` name resolves to a model, or a server has not been listed yet."""
        if self._targets(name) or self._default_targets(name):
            return True
        return bool(self._unlisted())

    def unresponsive(self, name: str) -> tuple[Upstream, ...]:
        """Return the servers of a name if none of them responds, otherwise nothing.

        A discovered server that was lost counts if no other server has the model.
        """
        targets = self._targets(name) or (self._default_targets(name) if name in DEFAULT else ())
        servers = [target.upstream for target in targets] or (self._unlisted() if name in DEFAULT else [])
        servers = servers or [server for server in self._servers() if _was_serving(server, name)]
        return tuple(dict.fromkeys(servers)) if all(server.outage for server in servers) else ()

    def _unlisted(self) -> list[Upstream]:
        """Return the configured servers whose models are not known yet."""
        return [server for server in self.servers() if not server.discovered and not server.listing()]

    def _is_down(self, target: RouteTarget) -> bool:
        return target.upstream.outage is not None or self._health.is_open(target.name)

    def local_embeddings(self) -> str:
        """Return the full name of an embedding model on a local server, or an empty string."""
        for upstream, model in self._ranked():
            if upstream.local and EMBEDDINGS in model.capabilities:
                return RouteTarget(upstream, model.name.removesuffix(LATEST)).name
        return ""

    def first_model(self, capability: str) -> str:
        """Return the full name of the first listed model with a capability, local models first, or ""."""
        models = [row for row in self._ranked() if capability in row[1].capabilities]
        for upstream, model in sorted(models, key=lambda row: not row[0].local):
            return RouteTarget(upstream, model.name).name
        return ""

    def is_local(self, name: str) -> bool:
        """Return whether only local servers receive conversations with this name."""
        try:
            return all(target.upstream.local for target in self.resolve_chat(name))
        except errors.SixfoldError:
            return False

    def has(self, name: str) -> bool:
        """Return whether a server that can be called has a model; aliases do not count."""
        return bool(self._direct_targets(name))

    def is_weighted(self, name: str) -> bool:
        """Return whether a name is an alias whose targets are chosen at random by weight."""
        choices = self._aliases.get(name)
        return choices is not None and choices[0].weight is not None

    def accepts_protocol(self, name: str, wire: str) -> bool:
        """Return whether a server with this name accepts requests in a protocol without translation."""
        return any(target.accepts(wire) for target in self._targets(name))

    def reads_documents(self, name: str, wire: str) -> bool:
        """Return whether all servers of a model read documents in a protocol; True for an unknown model."""
        try:
            targets = self.resolve_chat(name)
        except errors.SixfoldError:
            return True
        return all(target.upstream.reads_documents and target.accepts(wire) for target in targets)

    def searches_web(self, name: str, wire: str) -> bool:
        """Return whether a server of a model may itself search the web; True for an unknown model.

        Only a server outside the local network that uses the protocol may do so.
        """
        try:
            targets = self.resolve_chat(name)
        except errors.SixfoldError:
            return True
        return any(target.accepts(wire) and not target.upstream.in_local_network for target in targets)

    def models(self) -> tuple[tuple[str, str], ...]:
        """Return all names that a request may use with their owners, sorted."""
        owners = {alias: "sixfold" for alias in self._aliases if self._targets(alias)}
        bare_names: dict[str, str] = {}
        for upstream in self.servers():
            for model in upstream.models():
                owners.setdefault(f"{upstream.name}/{model}", upstream.name)
                bare_names.setdefault(model, upstream.name)
        owners |= {name: "sixfold" for name in DEFAULT if name not in owners and self.available(name)}
        return tuple(sorted({**bare_names, **owners}.items()))

    def listing(self) -> Mapping[str, ServedModel]:
        """Return the known facts about the model of each name in `models`."""
        models: dict[str, ServedModel] = {}
        for name in (*self._aliases, *DEFAULT):
            targets = self._targets(name) or (self._default_targets(name) if name in DEFAULT else ())
            if targets:
                models[name] = targets[0].model_info()
        for upstream in self.servers():
            for model in upstream.listing():
                models.setdefault(f"{upstream.name}/{model.name}", model)
                models.setdefault(model.name, model)
        return models

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
            return self._sharing(upstream, prefix, model)
        # Local servers are free, so providers are used only if the local servers do not respond.
        return self._by_speed([upstream for upstream in self.servers() if _lists(upstream, name)], name)

    def _sharing(self, upstream: Upstream, kind: str, model: str) -> tuple[RouteTarget, ...]:
        """Return the targets of a kind's discovered servers that list a model, otherwise only `upstream`."""
        listing = [
            server
            for server in self.servers()
            if upstream.discovered
            and server.discovered
            and (server.name == kind or server.name.startswith(f"{kind}@"))
            and _lists(server, model)
        ]
        return self._by_speed(listing, model) if listing else (RouteTarget(upstream, model),)

    def _by_speed(self, servers: Sequence[Upstream], model: str) -> tuple[RouteTarget, ...]:
        """Return a model's targets on these servers: local ones first, then the fastest."""
        shared = sum(server.local for server in servers) > 1
        targets = [RouteTarget(server, model, shared=shared and server.local) for server in servers]
        if len(targets) > 1:
            targets.sort(
                key=lambda each: (not each.upstream.local, self._health.get(each.name).first_seconds)
            )
        return tuple(targets)

    def _find_server(self, prefix: str, model: str) -> Upstream | None:
        """Return the server with this name, or else a discovered server.

        A discovered server on another host has its kind and host as its name (`ollama@gpu-box`).
        """
        candidates = [server for server in self._servers() if server.ready and server.serves(model)]
        other_hosts = f"{prefix}@"
        return next(
            (candidate for candidate in candidates if candidate.name == prefix),
            next(
                (
                    candidate
                    for candidate in candidates
                    if candidate.discovered and candidate.name.startswith(other_hosts)
                ),
                None,
            ),
        )

    def _default_targets(self, name: str) -> tuple[RouteTarget, ...]:
        """Return the targets of the first alias with the capability, or else of the first such model."""
        if name != VISION:
            return self._first_targets(_is_chat)
        return self._first_targets(_is_vision) or self._first_targets(_may_be_vision)

    def _first_targets(self, accepts: Callable[[Upstream, ServedModel], bool]) -> tuple[RouteTarget, ...]:
        for alias in self._aliases:
            targets = self._targets(alias)
            if accepted := tuple(
                [target for target in targets if accepts(target.upstream, target.model_info())]
            ):
                return accepted
        for upstream, model in self._ranked():
            if accepts(upstream, model):
                return self._sharing(upstream, upstream.name.partition("@")[0], model.name)
        return ()

    def _ranked(self) -> list[tuple[Upstream, ServedModel]]:
        """Return all listed models: those of servers that respond first, then those of configured servers.

        Within a server, loaded models come first.
        """
        servers = self.servers()
        rows = [
            (
                upstream.outage is not None,
                len(servers) if upstream.discovered else place,
                not model.loaded,
                upstream,
                model,
            )
            for place, upstream in enumerate(servers)
            for model in upstream.listing()
        ]
        return [(upstream, model) for *_, upstream, model in sorted(rows, key=lambda row: row[:3])]

    def _unknown_model_error(self, name: str) -> errors.SixfoldError:
        if lost := self.unresponsive(name):
            return reachability.unavailable(name[:100], outage_clauses(lost))
        if name not in DEFAULT and (description := self.describe_other(name)):
            return errors.UnknownModel(f"{description}, or another model of GET /v1/models")
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


def server_title(server: str) -> str:
    """Return the name of a server for clients, which omits the host of a discovered one."""
    return server.partition("@")[0]


def outage_clauses(servers: Iterable[Upstream]) -> list[str]:
    """Return a clause for clients about each of these model servers that does not respond."""
    return [
        f"the model server {server_title(server.name)} {server.outage.clause}"
        for server in servers
        if server.outage is not None
    ]


def is_routing_field(name: str) -> bool:
    """Return whether a field may select another model, server or price, or the length of the answer."""
    if name in _REMOVED_FIELDS:
        return True
    lower_name = name.casefold()
    return lower_name != name and (lower_name in _READ_FIELDS or lower_name in _REMOVED_FIELDS)


def remove_routing_fields(fields: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return the fields of a request except those for which `is_routing_field` is true."""
    for name in [name for name in fields if is_routing_field(name)]:
        del fields[name]
    return fields


def _lists(upstream: Upstream, name: str) -> bool:
    models = upstream.models()
    return name in models or (":" not in name and name + LATEST in models)


def _was_serving(server: Upstream, name: str) -> bool:
    """Return whether a discovered server that does not respond has had a model, or any for a default name."""
    if server.ready or server.outage is None:
        return False
    if name in DEFAULT:
        return any(model.chat for model in server.listing())
    prefix, _, model = name.partition("/")
    return _lists(server, name) or (bool(model) and prefix == server_title(server.name))


def _is_chat(_upstream: Upstream, model: ServedModel) -> bool:
    return model.chat


def _is_vision(_upstream: Upstream, model: ServedModel) -> bool:
    return model.vision is True


def _may_be_vision(upstream: Upstream, model: ServedModel) -> bool:
    """Return whether a model may accept images; a discovered server must list this capability."""
    return model.vision is None and not upstream.discovered


def _may_be_chat(target: RouteTarget) -> bool:
    """Return whether the model may accept conversations; a guess from its name does not exclude it."""
    model = target.model_info()
    return model.chat or not model.stated


def _weighted(choices: tuple[ModelAlias, ...], random_number: Callable[[], float]) -> tuple[ModelAlias, ...]:
    """Return the choices with one drawn by weight first, and the others by descending weight."""
    weights = [1.0 if choice.weight is None else choice.weight for choice in choices]
    point, first = random_number() * sum(weights), 0
    for index, weight in enumerate(weights):
        point -= weight
        if point < 0:
            first = index
            break
    other_choices = [choice for index, choice in enumerate(choices) if index != first]
    return (choices[first], *sorted(other_choices, key=lambda choice: -(choice.weight or 0)))
