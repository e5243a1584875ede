"""Every text-to-image model of the catalog by its own name on `/v1`, with the official client."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio
from PIL import Image

from sixfold.api.gateway.openai.images import sizes
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.catalog import models as catalog
from sixfold.settings import Settings
from tests.api.app_fixture import ORIGIN, AppFixture, running_app
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")
CATALOG = catalog.build(
    app_catalog.models_document(), app_catalog.price_table(Settings(data_dir=Path("/nonexistent"))), {}
)
NAMES = sizes.names(CATALOG)
PRICED = {"ra1": "0.04", "ra2": "0.04", "anime": "0.007", "photoreal": "0.07"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppFixture]:
    """A server with a small fast engine for every model."""
    async with running_app(tmp_path_factory.mktemp("images"), probe=False, **FILES) as result:
        yield result


def client(app: AppFixture, key: str | None = None) -> openai.AsyncOpenAI:
    visitor = httpx2.AsyncClient(transport=httpx2.ASGITransport(app.asgi, client=("127.0.0.1", 40000)))
    return openai.AsyncOpenAI(
        api_key=key or app.key, base_url=f"{ORIGIN}/v1", http_client=visitor, max_retries=0
    )


async def last_inputs(app: AppFixture) -> dict[str, Any]:
    """The inputs of the newest prediction."""
    response = await app.client.get("/api/containers/predictions?limit=1", headers=app.bearer)
    (newest,) = response.json()["predictions"]
    return {"model": newest["model"], **newest["input"]}


async def test_catalog_offers_the_models_that_need_a_prompt_alone() -> None:
    assert {"ra1", "ra2", "anime", "photoreal", "anime-image", "fast-image-native"} <= set(NAMES)
    assert not {"style-transfer", "smart-resize", "upscaler", "world-model"} & set(NAMES)
    assert not any(name.startswith("space:") for name in NAMES)


async def test_models_lists_text_to_image_models_and_openai_names(app: AppFixture) -> None:
    ids = [model.id async for model in client(app).models.list()]
    assert len(ids) == len(set(ids))
    assert {*NAMES, "dall-e-3", "gpt-image-1"} <= set(ids)
    for name in (*NAMES, "dall-e-3"):
        assert (await client(app).models.retrieve(name)).owned_by == "sixfold"


@pytest.mark.parametrize("name", NAMES)
async def test_text_to_image_model_is_served_under_its_own_name(app: AppFixture, name: str) -> None:
    answer = await client(app).images.generate(model=name, prompt="a lake at dawn")
    assert answer.data is not None
    assert answer.data[0].url is not None
    file = await app.client.get(answer.data[0].url)
    assert Image.open(io.BytesIO(file.content)).format == "PNG"
    assert (await last_inputs(app))["model"] == name


@pytest.mark.parametrize(("name", "price"), PRICED.items())
async def test_text_to_image_model_is_charged_at_its_own_price(
    app: AppFixture, name: str, price: str
) -> None:
    before, _ = await app.balance()
    await client(app).images.generate(model=name, prompt="a lake", n=2)
    after, held = await app.balance()
    assert (Decimal(before) - Decimal(after), held) == (2 * Decimal(price), "0.00")


SIZES: list[tuple[str, str, dict[str, Any]]] = [
    ("ra2", "640x480", {"width": 640, "height": 480}),
    ("ra1", "1360x768", {"size": "1360x768"}),
    ("ra1", "1536x1024", {"size": "1152x768"}),
    ("ra1", "1024x1792", {"size": "768x1360"}),
    ("ra1", "256x256", {"size": "1024x1024"}),
    ("ra1", "auto", {"size": "1024x1024"}),
    ("anime", "1024x1024", {"size": "square_hd"}),
    ("anime", "portrait_4_3", {"size": "portrait_4_3"}),
    ("anime", "1792x1024", {"size": "landscape_16_9"}),
    ("photoreal", "2048x1152", {"aspect_ratio": "16:9", "resolution": "2K"}),
    ("photoreal", "1024x1024", {"aspect_ratio": "1:1", "resolution": "1K"}),
    ("anime-image", "1792x1024", {"width": 1536, "height": 880}),
    ("anime-image", "1024x1792", {"width": 880, "height": 1536}),
    ("anime-image", "256x256", {"width": 512, "height": 512}),
    ("anime-image", "1024x1024", {"width": 1024, "height": 1024}),
    ("photoreal", "1024x1536", {"aspect_ratio": "2:3", "resolution": "2K"}),
]


@pytest.mark.parametrize(("name", "size", "inputs"), SIZES)
async def test_size_of_the_request_becomes_the_inputs_of_the_model(
    app: AppFixture, name: str, size: Any, inputs: dict[str, Any]
) -> None:
    await client(app).images.generate(model=name, prompt="a lake", size=size)
    assert (await last_inputs(app)).items() >= {"model": name, **inputs}.items()


@pytest.mark.parametrize("size", sizes.STANDARD)
async def test_standard_size_is_accepted_by_every_image_model(size: str) -> None:
    for name in NAMES:
        inputs = sizes.inputs(CATALOG, name, size)
        assert CATALOG[name].check({"prompt": "a lake", **inputs}).items() >= inputs.items(), name


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("ra1", "640x480", "size must be one of 1024x1024, 1152x768,"),
        ("ra1", "640x480", "or auto (got 640x480)"),
        ("anime", "640x480", "size must be one of 1024x1024, 1152x864,"),
        ("photoreal", "9000x9000", "1024x576"),
        ("ra1", "big", "size must be one of 1024x1024"),
        ("ra1", 5, "size must be one of 1024x1024"),
        ("ra1", ["1024x1024"], "size must be one of 1024x1024"),
        ("ra2", "big", "size must be WIDTHxHEIGHT"),
        ("ra2", "9000x9000", "from 64 to 2048"),
        ("anime-image", "300x300", "from 512 to 1536"),
    ],
)
async def test_unsupported_size_is_400_and_names_supported_sizes(
    app: AppFixture, name: str, size: Any, message: str
) -> None:
    before = await app.balance()
    with pytest.raises(openai.BadRequestError) as excinfo:
        await client(app).images.generate(model=name, prompt="a lake", size=size)
    assert excinfo.value.param == "size"
    assert message in str(excinfo.value)
    assert await app.balance() == before


async def test_model_that_is_not_text_to_image_is_404(app: AppFixture) -> None:
    for name in ("upscaler", "tts", "smart-resize", "gpt-9"):
        with pytest.raises(openai.NotFoundError):
            await client(app).images.generate(model=name, prompt="a lake")


async def test_key_for_one_model_sees_and_uses_that_one(app: AppFixture) -> None:
    key = await app.limited_key(KeyLimits(services=("anime",)))
    assert [model.id async for model in client(app, key).models.list()] == ["anime"]
    assert (await client(app, key).images.generate(model="anime", prompt="a lake")).data
    with pytest.raises(openai.PermissionDeniedError):
        await client(app, key).images.generate(model="ra1", prompt="a lake")
