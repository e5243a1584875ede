"""Server selection: names, aliases, weights, latency, circuit breakers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.gateway.capabilities import CHAT, EMBEDDINGS, VISION, ServedModel, guess_model
from sixfold.core.gateway.health import HealthTracker
from sixfold.core.gateway.policy import ModelAlias, parse
from sixfold.core.gateway.routing import DEFAULT, ModelRouter
from sixfold.core.reachability import Outage


class FakeServer:
    """A server with models that does not respond to calls."""

    local = False
    in_local_network = False
    in_flight = 0
    gpu = None
    reads_documents = False
    outage: Outage | None = None

    def __init__(
        self, name: str, *models: str | ServedModel, ready: bool = True, discovered: bool = False
    ) -> None:
        self.name = name
        self.ready = ready
        self.discovered = discovered
        self._listing = tuple(guess_model(model) if isinstance(model, str) else model for model in models)

    def serves(self, model: str) -> bool:
        return model in self.models()

    def models(self) -> tuple[str, ...]:
        return tuple(model.name for model in self._listing)

    async def delete(self, path: str) -> int:
        raise NotImplementedError(path)

    def listing(self) -> tuple[ServedModel, ...]:
        return self._listing

    def describe(self, model: str) -> ServedModel:
        return next((each for each in self._listing if each.name == model), guess_model(model))


class Clock:
    """A clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def router(
    *servers: FakeServer,
    aliases: Mapping[str, Any] | None = None,
    health: HealthTracker | None = None,
    drawn: float = 0.0,
) -> ModelRouter:
    chosen = parse({"aliases": dict(aliases or {})}).aliases
    result: Any = servers
    return ModelRouter(lambda: result, chosen, health or HealthTracker(Clock()), lambda: drawn)


def names(router: ModelRouter, name: str) -> list[str]:
    return [target.name for target in router.resolve(name)]


def test_model_is_found_with_and_without_its_server_name() -> None:
    result = router(FakeServer("a", "m", "n"), FakeServer("b", "m"))
    assert names(result, "b/m") == ["b/m"]
    assert names(result, "n") == ["a/n"]
    assert names(result, "m") == ["a/m", "b/m"]


def test_local_server_precedes_a_faster_provider() -> None:
    paid, own = FakeServer("paid", "m"), FakeServer("own", "m")
    own.local = True
    health = HealthTracker(Clock())
    health.record_success("paid/m", 0.1)
    health.record_success("own/m", 2.0)
    result = router(paid, own, health=health)
    assert names(result, "m") == ["own/m", "paid/m"]
    for _ in range(20):
        health.record_failure("own/m")
    assert names(result, "m") == ["paid/m", "own/m"]


def test_alias_with_a_missing_target_names_the_target() -> None:
    result = router(FakeServer("a", "m"), aliases={"fast": ["ollama/qwen3", "b/m"]})
    with pytest.raises(
        errors.UnknownModel, match="'fast' refers to ollama/qwen3 or b/m, which is not available"
    ):
        result.resolve("fast")


def test_targets_of_an_alias_are_tried_in_order() -> None:
    result = router(
        FakeServer("a", "m"), FakeServer("b", "m"), aliases={"fast": ["b/m", "a/m"], "one": "a/m"}
    )
    assert names(result, "fast") == ["b/m", "a/m"]
    assert names(result, "one") == ["a/m"]


@pytest.mark.parametrize(("drawn", "first"), [(0.0, "a/m"), (0.2, "a/m"), (0.3, "b/m"), (0.999, "b/m")])
def test_weights_select_the_first_target_at_random(drawn: float, first: str) -> None:
    weighted = [{"target": "a/m", "weight": 1}, {"target": "b/m", "weight": 3}]
    result = router(FakeServer("a", "m"), FakeServer("b", "m"), aliases={"half": weighted}, drawn=drawn)
    assert names(result, "half")[0] == first
    assert len(names(result, "half")) == 2


def test_fastest_of_several_servers_is_tried_first() -> None:
    health = HealthTracker(Clock())
    health.record_success("a/m", 0.9)
    health.record_success("b/m", 0.1)
    assert names(router(FakeServer("a", "m"), FakeServer("b", "m"), health=health), "m") == ["b/m", "a/m"]


def test_failing_server_is_tried_last() -> None:
    clock = Clock()
    health = HealthTracker(clock)
    result = router(FakeServer("a", "m"), FakeServer("b", "m"), aliases={"x": ["a/m", "b/m"]}, health=health)
    for _ in range(5):
        health.record_failure("a/m")
    assert names(result, "x") == ["b/m", "a/m"]
    assert not health.allows("a/m")
    clock.now += 6
    assert names(result, "x") == ["a/m", "b/m"]
    # The first call is the trial.
    assert health.allows("a/m")
    # Only one trial runs at a time.
    assert not health.allows("a/m")
    health.record_success("a/m", 0.1)
    assert health.allows("a/m")


def test_target_is_busy_until_a_success_or_another_failure() -> None:
    health = HealthTracker(Clock())
    health.record_failure("a/m", busy=True)
    health.record_failure("b/m", busy=True)
    assert health.busy(["a/m", "b/m"])
    health.record_failure("b/m")
    assert not health.busy(["a/m", "b/m"])
    health.record_success("a/m", 0.1)
    assert not health.busy(["a/m"])


def test_a_circuit_stays_open_longer_each_time() -> None:
    clock = Clock()
    health = HealthTracker(clock)
    for _ in range(5):
        health.record_failure("a/m")
    clock.now += 6
    assert health.allows("a/m")
    health.record_failure("a/m")
    clock.now += 6
    assert not health.allows("a/m")
    clock.now += 6
    assert health.allows("a/m")


def test_retry_budget_is_refilled_by_successes_and_time() -> None:
    clock = Clock()
    health = HealthTracker(clock)
    assert sum(health.may_retry() for _ in range(100)) == 20
    for _ in range(10):
        health.record_success("a/m", 0.1)
    assert sum(health.may_retry() for _ in range(100)) == 2
    clock.now += 11
    assert sum(health.may_retry() for _ in range(100)) == 2


def test_unknown_model_error_without_servers_has_a_remedy() -> None:
    with pytest.raises(errors.UnknownModel):
        router(FakeServer("a", "m")).resolve("none")
    with pytest.raises(errors.EngineUnavailable, match="Ollama"):
        router(FakeServer("a", "m", ready=False)).resolve("m")


def test_default_model_is_the_first_alias_or_model() -> None:
    assert names(router(FakeServer("a"), FakeServer("b", "m")), "default") == ["b/m"]
    assert names(router(FakeServer("b", "m", "n"), aliases={"x": "b/n"}), "text-llm") == ["b/n"]


EMBEDDER = ServedModel("embedder", frozenset({EMBEDDINGS}), stated=True)
TALKER = ServedModel("talker", frozenset({CHAT}), stated=True)
SEER = ServedModel("seer", frozenset({CHAT, VISION}), stated=True)


def test_default_is_a_chat_model_and_vision_an_image_model() -> None:
    result = router(FakeServer("a", EMBEDDER, TALKER, SEER), aliases={"vectors": "a/embedder"})
    assert [names(result, name) for name in ("default", "vision")] == [["a/talker"], ["a/seer"]]
    aliased = router(FakeServer("a", TALKER, SEER), aliases={"vision": "a/talker"})
    # The alias of the operator has precedence.
    assert names(aliased, "vision") == ["a/talker"]


def test_configured_servers_precede_and_loaded_models_next() -> None:
    loaded = ServedModel("warm", frozenset({CHAT}), loaded=True, stated=True)
    mine = FakeServer("mine", EMBEDDER, TALKER)
    results = FakeServer("ollama", "cold", discovered=True), FakeServer("vllm", loaded, discovered=True)
    assert names(router(*results, mine), "default") == ["mine/talker"]
    assert names(router(*results), "default") == ["vllm/warm"]


def test_vision_must_be_stated_only_for_discovered_servers() -> None:
    assert names(router(FakeServer("a", "small")), "vision") == ["a/small"]
    assert names(router(FakeServer("a", "small"), FakeServer("b", SEER)), "vision") == ["b/seer"]
    for server in (FakeServer("a", "small", discovered=True), FakeServer("a", TALKER)):
        with pytest.raises(errors.EngineUnavailable, match="accepts images"):
            router(server).resolve("vision")
        assert not router(server).available("vision")
    # A configured server that has not listed its models yet may have such a model.
    assert router(FakeServer("a")).available("vision")
    assert not router(FakeServer("a", discovered=True)).available("chat")


def test_chat_with_a_known_non_chat_model_is_refused() -> None:
    result = router(
        FakeServer("a", EMBEDDER, "e5-chat"),
        FakeServer("b", TALKER),
        aliases={"x": ["a/embedder", "b/talker"]},
    )
    with pytest.raises(errors.InvalidInput, match="a/embedder is an embedding model"):
        result.resolve_chat("a/embedder")
    assert [target.name for target in result.resolve_chat("e5-chat")] == ["a/e5-chat"]
    assert [target.name for target in result.resolve_chat("x")] == ["b/talker"]


def test_name_without_a_tag_selects_the_latest() -> None:
    result = router(FakeServer("ollama", "qwen3:latest", "phi:3b"))
    assert names(result, "qwen3") == ["ollama/qwen3"]
    with pytest.raises(errors.UnknownModel):
        result.resolve("phi")


def test_kind_name_resolves_to_another_host_if_not_local() -> None:
    far = FakeServer("ollama@gpu-box", "m", discovered=True)
    assert names(router(FakeServer("ollama", "m", ready=False, discovered=True), far), "ollama/m") == [
        "ollama@gpu-box/m"
    ]
    near = FakeServer("ollama", "m", discovered=True)
    assert names(router(near, far), "ollama/m") == ["ollama/m", "ollama@gpu-box/m"]
    assert names(router(FakeServer("ollama", "other", discovered=True), far), "ollama/m") == [
        "ollama@gpu-box/m"
    ]


def test_all_names_are_listed() -> None:
    names = dict(router(FakeServer("a", "m"), aliases={"x": "a/m", "gone": "b/m"}).models())
    assert names == {"a/m": "a", "m": "a", "x": "sixfold", **dict.fromkeys(DEFAULT, "sixfold")}


@pytest.mark.parametrize(
    "table",
    [
        {"retrys": 3},
        {"retries": -1},
        {"retries": 1.5},
        {"cache": "yes"},
        {"upstreams": {"a": {"kind": "openai", "base_url": "ftp://x"}}},
        {"upstreams": {"a": {"kind": "openai", "modells": []}}},
        {"upstreams": {"a/b": {"kind": "openai"}}},
        {"upstreams": {"a": {"base_url": "http://x"}}},
        {"upstreams": {"a": {"kind": "opnai"}}},
        {"aliases": {"x": []}},
        {"aliases": {"x": [{"weight": 1}]}},
        {"aliases": 3},
    ],
)
def test_invalid_gateway_table_is_refused_with_a_reason(table: Any) -> None:
    with pytest.raises(ValueError, match=r"gateway|alias"):
        parse(table)


def test_image_providers_are_not_gateway_servers() -> None:
    assert parse({"upstreams": {"fal": {"kind": "fal", "api_key": "k"}}}).servers == ()
    assert parse({"aliases": {"x": "a/m"}}).aliases == {"x": (ModelAlias("a/m"),)}
