"""The model table: complete rows with dated prices, supported sizes, several calls for many images."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.app import catalog as app_catalog
from sixfold.core.catalog.engines import EngineError
from sixfold.engines.providers import model_table
from sixfold.engines.providers import requests as provider_requests
from sixfold.engines.providers.model_table import Override, ProviderCost, SizeRules, UsedInputs
from sixfold.engines.providers.requests import ProviderTask
from sixfold.providers import PROVIDERS
from tests.unit.engines.providers import parts

ROWS = [(provider, capability) for provider, row in model_table.capabilities().items() for capability in row]
FREE = [
    model_table.route(provider, capability).sizes
    for provider, capability in ROWS
    if (model_table.route(provider, capability).sizes or SizeRules("ratio")).format in {"object", "text"}
]
SIDES = st.integers(64, 4096)


@pytest.mark.parametrize(("provider", "capability"), ROWS)
def test_every_row_is_complete_and_has_a_price_source(provider: str, capability: str) -> None:
    route = model_table.route(provider, capability)
    assert route.name == f"{provider}-{capability}"
    assert route.max_per_call >= 1
    assert re.fullmatch(r"20\d\d-\d\d", route.cost.seen)
    assert route.cost.source.startswith("https://")
    amounts = (route.cost.usd, route.cost.text_in, route.cost.image_in, route.cost.out)
    assert any(amount > 0 for amount in amounts) == (route.cost.per != "unknown")
    assert "prompt" in route.fields or "source" in route.fields


def test_every_provider_of_the_catalog_has_a_route() -> None:
    engines = app_catalog.models_document()["engines"]
    named = {
        tuple(name.split("-", 1)): row["options"]["route"]
        for name, row in engines.items()
        if row["kind"] == "provider" and row["factory"].startswith("sixfold.engines.providers.")
    }
    assert named
    assert all(key in ROWS and key[1] == route for key, route in named.items())


@given(SIDES, SIDES, st.sampled_from(FREE))
def test_nearest_size_is_within_the_limits_of_the_route(width: int, height: int, sizes: SizeRules) -> None:
    across, down = sizes.nearest(width, height)
    assert across % sizes.step == down % sizes.step == 0
    assert sizes.min_side <= min(across, down)
    assert max(across, down) <= sizes.max_side
    assert sizes.min_pixels <= across * down <= sizes.max_pixels
    # The tolerance is for rounding to a step.
    assert max(across / down, down / across) <= sizes.max_ratio * 1.07
    shape = min(sizes.max_ratio, max(1 / sizes.max_ratio, width / height))
    assert abs(math.log(across / down / shape)) < 0.2


@given(SIDES, SIDES)
def test_nearest_aspect_ratio_is_selected(width: int, height: int) -> None:
    sizes = model_table.route("replicate", "image").sizes
    assert sizes is not None
    data = sizes.encode(width, height)
    across, down = (int(part) for part in data.split(":"))
    chosen = abs(math.log(across / down * height / width))
    for other in sizes.ratios:
        wide, high = (int(part) for part in other.split(":"))
        assert chosen <= abs(math.log(wide / high * height / width)) + 1e-9


@given(st.integers(1, 16), st.integers(0, 2**31 - 1))
def test_images_are_split_into_calls_without_loss(count: int, seed: int) -> None:
    route = model_table.route("fal", "image")
    calls = route.calls(ProviderTask("ra2", "x", seed=seed, count=count), (512, 512))
    assert sum(call.count for call in calls) == count
    assert all(1 <= call.count <= route.max_per_call for call in calls)
    seeds = [call.inputs["seed"] for call in calls]
    assert seeds[0] == seed
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= each < 2**31 for each in seeds)


def test_model_without_a_count_gets_one_call_per_image() -> None:
    route = model_table.route("replicate", "style")
    calls = route.calls(ProviderTask("style-transfer", "noir", seed=1, count=3), None)
    assert [call.count for call in calls] == [1, 1, 1]


def test_unknown_route_error_lists_the_routes() -> None:
    with pytest.raises(ValueError, match="use image, image-fast"):
        model_table.route("fal", "picture")


def test_input_configured_as_empty_is_not_sent() -> None:
    over = Override(inputs={"quality": "", "background": "opaque"})
    (call,) = model_table.route("openai", "image", over).calls(ProviderTask("ra2", "x"), (1024, 1024))
    assert "quality" not in call.inputs
    assert call.inputs["background"] == "opaque"


@pytest.mark.parametrize(
    ("price", "used", "micros"),
    [
        (ProviderCost("image", "", "", usd=Decimal("0.04")), UsedInputs(images=3), 120_000),
        (
            ProviderCost("megapixel", "", "", usd=Decimal("0.025")),
            UsedInputs(images=2, pixels=2 * 1024 * 1024),
            50_000,
        ),
        (
            ProviderCost("megapixel", "", "", usd=Decimal("0.025")),
            UsedInputs(images=1, pixels=2**20 + 1),
            50_000,
        ),
        (
            ProviderCost("megapixel", "", "", usd=Decimal("0.003")),
            UsedInputs(images=1, pixels=1, units=1.5),
            4_500,
        ),
        (ProviderCost("second", "", "", usd=Decimal("0.000225")), UsedInputs(seconds=0.001), 1),
        (ProviderCost("second", "", "", usd=Decimal("0.000225")), UsedInputs(), None),
        (
            ProviderCost("token", "", "", out=Decimal(30), text_in=Decimal(5)),
            UsedInputs(text_in=3, out=100),
            3_015,
        ),
        (ProviderCost("token", "", "", out=Decimal(30)), UsedInputs(images=1), None),
        (ProviderCost("unknown", "", ""), UsedInputs(seconds=3.0), None),
    ],
)
def test_cost_of_a_call_is_rounded_up_or_unknown(
    price: ProviderCost, used: UsedInputs, micros: int | None
) -> None:
    assert price.micros(used) == micros


def test_request_accepts_the_input_names_of_every_model() -> None:
    order = provider_requests.parse(
        parts.task("create_image", prompt="a", width=9, height=8, format="jpg", seed=3)
    )
    assert (order.size, order.output.name, order.seed, order.count) == ((9, 8), "jpeg", 3, 1)
    with pytest.raises(EngineError, match="format"):
        provider_requests.parse(parts.task("x", prompt="a", format="tiff"))


def test_a_pattern_names_the_engines_of_all_providers() -> None:
    engines = app_catalog.models_document()["models"]["ra1"]["engines"]
    hosted = [name for name in PROVIDERS if "image" in model_table.capabilities().get(name, {})]
    assert hosted[:3] == ["fal", "replicate", "openai"]
    assert engines[2:-1] == [f"{name}-image" for name in hosted]


def test_pattern_without_a_provider_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        name: row for name, row in model_table.engine_rows().items() if row["options"]["route"] != "image"
    }
    monkeypatch.setattr(model_table, "engine_rows", lambda: rows)
    with pytest.raises(ValueError, match=r"'\*-image'"):
        app_catalog.models_document()
