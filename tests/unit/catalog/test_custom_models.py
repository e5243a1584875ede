"""Models of accounts: visible to their owner, versioned, with their own engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sixfold import errors
from sixfold.api.hosting.replicate import schemas
from sixfold.core.accounts import accounts
from sixfold.core.catalog.custom_models import CustomModels
from sixfold.core.predictions.states import PredictionState
from tests import loop_time
from tests.harness.pipeline import PRICE, Options, PipelineFixture, models, running_pipeline


@pytest.fixture
async def pipeline(tmp_path: Path) -> AsyncIterator[PipelineFixture]:
    async with running_pipeline(tmp_path) as result:
        yield result


def document(attribute: str = "EchoEngine", **row: Any) -> dict[str, Any]:
    result = models({"mine": attribute})
    return {"engines": result["engines"], "models": {"mine": result["models"]["mine"] | row}}


async def test_custom_model_runs_on_its_own_engine_and_is_charged(pipeline: PipelineFixture) -> None:
    put = await pipeline.service.custom_models.put(pipeline.payer.id, "model", "mine", document())
    assert (put.version, put.kind) == (1, "model")
    prediction = await pipeline.run("mine")
    assert (prediction.state, prediction.cost) == (PredictionState.SUCCEEDED, PRICE)
    assert pipeline.payer.id in prediction.engine
    assert await pipeline.faults() == ()


async def test_custom_model_is_invisible_to_other_accounts(pipeline: PipelineFixture) -> None:
    await pipeline.service.custom_models.put(pipeline.payer.id, "model", "mine", document())
    other = await pipeline.database.write(accounts.create("other@example.com", credit=1_000_000))
    with pytest.raises(errors.NotFound):
        await pipeline.service.submit(replace(pipeline.request("mine"), principal=other.owner))
    assert await pipeline.service.custom_models.page(other.id) == ((), None)


async def test_new_version_replaces_the_former_one_under_its_name(pipeline: PipelineFixture) -> None:
    own = pipeline.service.custom_models
    await own.put(pipeline.payer.id, "model", "mine", document("CrashEngine"))
    second = await own.put(pipeline.payer.id, "model", "mine", document(title="better"))
    assert second.version == 2
    assert [each.model.title async for each in own.each(pipeline.payer.id)] == ["better"]
    assert (await pipeline.run("mine")).state is PredictionState.SUCCEEDED


async def test_large_documents_in_memory_are_bounded(pipeline: PipelineFixture) -> None:
    own, size = pipeline.service.custom_models, 3 * 2**20
    texts = [f"{number}" + "x" * size for number in range(7)]
    for number, text in enumerate(texts):
        result = document(description=text)
        result["models"] = {f"mine-{number}": result["models"]["mine"]}
        await own.put(pipeline.payer.id, "model", f"mine-{number}", result)
    assert size < own.kept_size <= 16 * 2**20
    met = [own.known(f"mine-{number}", pipeline.payer.id) for number in range(7)]
    assert [model is not None for model in met] == [False, False, True, True, True, True, True]
    models = [each async for each in own.each(pipeline.payer.id)]
    assert [each.model.description for each in models] == texts
    assert own.kept_size <= 16 * 2**20
    assert (await pipeline.run("mine-0")).state is PredictionState.SUCCEEDED
    assert await own.names(pipeline.payer.id, "model") == tuple(f"mine-{number}" for number in range(7))
    assert await own.names(pipeline.payer.id, "workflow") == ()


async def test_many_small_documents_in_memory_are_bounded(pipeline: PipelineFixture) -> None:
    own = pipeline.service.custom_models
    for number in range(300):
        await own.put(pipeline.payer.id, "model", "mine", document(description=f"{number}" + "x" * 60_000))
    assert own.kept_size <= 16 * 2**20
    result = await own.find("mine", pipeline.payer.id)
    assert (result.version, result.model.description[:3]) == (300, "299")


async def test_version_limit_counts_removed_models(pipeline: PipelineFixture) -> None:
    own = CustomModels(pipeline.database, pipeline.service.catalog, max_versions=3)
    other = await pipeline.database.write(accounts.create("other@example.com"))
    for number in range(3):
        await own.put(pipeline.payer.id, "model", "mine", document(title=f"{number}"))
        await own.remove(pipeline.payer.id, "mine")
    with pytest.raises(errors.BadRequest, match=r"at most 3 versions .* raise SIXFOLD_MODEL_VERSIONS"):
        await own.put(pipeline.payer.id, "model", "mine", document())
    await own.put(other.id, "model", "mine", document())


@pytest.mark.parametrize(("kind", "most"), [("space", 2**19), ("model", 2**22)])
async def test_a_document_that_is_too_long_is_not_stored(
    pipeline: PipelineFixture, kind: str, most: int
) -> None:
    own = pipeline.service.custom_models
    await own.put(pipeline.payer.id, kind, "mine", document(description="x" * (most - 1_000)))
    with pytest.raises(errors.BadRequest, match=f"of mine may have at most {most:,} characters of JSON"):
        await own.put(pipeline.payer.id, kind, "mine", document(description="x" * most))
    assert (await own.find("mine", pipeline.payer.id)).version == 1


async def test_page_is_limited_by_number_and_by_bytes(pipeline: PipelineFixture) -> None:
    own = pipeline.service.custom_models
    for number in range(5):
        output = document(description="x" * (3 * 2**19 if number < 3 else 1))
        output["models"] = {f"mine-{number}": output["models"]["mine"]}
        await own.put(pipeline.payer.id, "model", f"mine-{number}", output)
    pages: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        result, cursor = await own.page(pipeline.payer.id, "", 2, cursor)
        pages.append([each.name for each in result])
    assert pages == [["mine-0", "mine-1"], ["mine-2", "mine-3"], ["mine-4"]]
    result, cursor = await own.page(pipeline.payer.id)
    assert ([each.name for each in result], cursor) == (["mine-0", "mine-1"], "after:mine-1")
    second_models = CustomModels(pipeline.database, pipeline.service.catalog)
    await second_models.load()
    assert [second_models.known(f"mine-{number}", pipeline.payer.id) is not None for number in range(5)] == [
        True
    ] * 5


async def test_many_models_are_read_and_hashed_one_by_one(pipeline: PipelineFixture) -> None:
    for number in range(100):
        output = document()
        row = output["models"].pop("mine")
        fixed = {"graph": {str(at): {"class_type": "X", "inputs": {}} for at in range(1_000)}}
        output["models"] = {f"mine-{number:02}": row | {"fixed": fixed}}
        await pipeline.service.custom_models.put(pipeline.payer.id, "model", f"mine-{number:02}", output)
    own = CustomModels(pipeline.database, pipeline.service.catalog)
    async with loop_time.watched() as loop:
        result, _ = await own.page(pipeline.payer.id)
        hashed = {schemas.version_of(each.model) async for each in own.each(pipeline.payer.id)}
    assert (len(result), len(hashed)) == (100, 100)
    assert loop.longest < 0.06


async def test_removed_model_cannot_run_and_can_be_added_again(pipeline: PipelineFixture) -> None:
    own = pipeline.service.custom_models
    await own.put(pipeline.payer.id, "model", "mine", document())
    await own.remove(pipeline.payer.id, "mine")
    with pytest.raises(errors.NotFound):
        await pipeline.run("mine")
    with pytest.raises(errors.NotFound):
        await own.remove(pipeline.payer.id, "mine")
    assert (await own.put(pipeline.payer.id, "model", "mine", document())).version == 2


async def test_built_in_names_are_reserved_and_bad_document_rejected(pipeline: PipelineFixture) -> None:
    own = pipeline.service.custom_models
    with pytest.raises(errors.Conflict):
        await own.put(pipeline.payer.id, "model", "echo", models())
    with pytest.raises(ValueError, match="price row nothing of model mine not found"):
        await own.put(pipeline.payer.id, "model", "mine", document(price="nothing"))
    assert await own.page(pipeline.payer.id) == ((), None)


async def test_queued_run_of_a_custom_model_succeeds_after_a_restart(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as before:
        await before.service.custom_models.put(before.payer.id, "model", "mine", document())
        pending_prediction = await before.service.submit(before.request("mine"))
    async with running_pipeline(tmp_path) as after:
        await after.service.custom_models.load()
        assert (await after.service.wait(pending_prediction, 60)).state is PredictionState.SUCCEEDED
