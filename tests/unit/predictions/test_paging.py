"""Pages of large documents: bounded by bytes, and nothing is lost between them."""

from __future__ import annotations

from pathlib import Path

from sixfold.core import pagination
from sixfold.core.accounts.prices import FREE
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.workflows.comfyui import prompt_queue
from tests.harness.pipeline import Options, PipelineFixture, models, running_pipeline

_EIGHTH = pagination.PAGE_BYTES // 8


async def _submit(built: PipelineFixture, model: str, sizes: list[int]) -> list[str]:
    results: list[Prediction] = []
    for size in sizes:
        order = built.order(model, hold=FREE, extras={"graph": "é" * size})
        results.append(await built.service.submit(order))
    return [prediction.id for prediction in results]


async def test_page_is_limited_by_bytes_and_has_a_cursor(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as built:
        sizes = [3 * _EIGHTH, 3 * _EIGHTH, 9 * _EIGHTH, 3 * _EIGHTH, 3 * _EIGHTH, 3 * _EIGHTH]
        output = await _submit(built, "echo", sizes)
        pages: list[list[str]] = []
        cursor: str | None = None
        while cursor is not None or not pages:
            result, cursor = await built.service.page(Tenant(built.payer.id), PredictionFilter(), 200, cursor)
            pages.append([prediction.id for prediction in result])
        assert [len(each) for each in pages] == [2, 1, 1, 2]
        assert [item for page in pages for item in page] == output[::-1]
        result, cursor = await built.service.page(Tenant(built.payer.id), PredictionFilter(), 1, None)
        assert ([each.id for each in result], cursor) == (output[-1:], output[-1])


async def test_prompts_are_listed_within_the_byte_limit(tmp_path: Path) -> None:
    named = {**models()}
    named["models"] = {prompt_queue.PROMPT: {**named["models"]["echo"]}, **named["models"]}
    async with running_pipeline(tmp_path, Options(start=False, models=named)) as built:
        result = await _submit(built, prompt_queue.PROMPT, [3 * _EIGHTH] * 4)
        tenant = Tenant(built.payer.id)
        first = await built.database.read(prompt_queue.first(tenant))
        assert [row["id"] for row in first] == result[:2]
        assert await built.database.read(prompt_queue.count_unfinished(tenant)) == 4
        for prediction_id in result:
            await built.service.cancel(prediction_id, Tenant(built.payer.id))
        ended = await built.database.read(prompt_queue.list_ended(tenant, 64))
        assert [row["id"] for row in ended] == result[:1:-1]
        assert not await built.database.read(prompt_queue.list_ended(tenant, 0))
        assert not await built.database.read(prompt_queue.first(tenant))
