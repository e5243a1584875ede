"""Pages of large documents: bounded by bytes, and nothing is lost between them."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any, cast

import pytest

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.accounts.prices import FREE
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency import fair_threads, loaded_objects, memory_limit
from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.database import Transaction, encode_json, many
from sixfold.core.predictions import queries
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workflows.comfyui import prompt_queue
from sixfold.store import sql
from tests.harness import backends
from tests.harness.pipeline import Options, PipelineFixture, models, running_pipeline

_EIGHTH = pagination.PAGE_BYTES // 8


async def _submit(pipeline: PipelineFixture, model: str, sizes: list[int]) -> list[str]:
    results: list[Prediction] = []
    for size in sizes:
        request = pipeline.request(model, hold=FREE, extras={"graph": "x" * size})
        results.append(await pipeline.service.submit(request))
    return [prediction.id for prediction in results]


@pytest.mark.parametrize("backend", backends.EACH_DATABASE)
async def test_page_is_limited_by_bytes_and_has_a_cursor(tmp_path: Path, backend: str) -> None:
    backends.database_url(tmp_path, backend)
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        sizes = [3 * _EIGHTH, 3 * _EIGHTH, 9 * _EIGHTH, 3 * _EIGHTH, 3 * _EIGHTH, 3 * _EIGHTH]
        output = await _submit(pipeline, "echo", sizes)
        pages: list[list[str]] = []
        cursor: str | None = None
        while cursor is not None or not pages:
            result, cursor = await pipeline.service.page(
                Tenant(pipeline.payer.id), PredictionFilter(), 200, cursor
            )
            pages.append([prediction.id for prediction in result])
        assert [len(each) for each in pages] == [2, 1, 1, 2]
        assert [item for page in pages for item in page] == output[::-1]
        result, cursor = await pipeline.service.page(Tenant(pipeline.payer.id), PredictionFilter(), 1, None)
        assert ([each.id for each in result], cursor) == (output[-1:], output[-1])


_PAGES = [
    ([9 * _EIGHTH] * 100, 100, (1, 9 * _EIGHTH, True)),
    ([3 * _EIGHTH] * 100, 100, (2, 6 * _EIGHTH, True)),
    ([1] * 5, 5, (5, 5, False)),
    ([1] * 6, 5, (5, 5, True)),
    ([], 5, (0, 0, False)),
]


@pytest.mark.parametrize(("sizes", "limit", "page"), _PAGES)
def test_rows_beyond_a_page_are_not_measured(
    sizes: list[int], limit: int, page: tuple[int, int, bool]
) -> None:
    measured = list[int]()

    def read() -> Transaction[None]:
        result = yield from pagination.count_rows("q", {}, limit)
        assert result == pagination.PageRows(*page)

    reading = read()
    query = next(reading)
    with contextlib.suppress(StopIteration):
        while True:
            start, step = int(query.params["offset"] or 0), int(query.params["limit"] or 0)
            measured += sizes[start : start + step]
            query = reading.send([{"size": size} for size in sizes[start : start + step]])
    assert page[0] <= len(measured) <= page[0] + 2


@pytest.mark.parametrize(("sizes", "limit", "page"), _PAGES)
def test_list_of_predictions_is_read_and_measured_once(
    sizes: list[int], limit: int, page: tuple[int, int, bool]
) -> None:
    """A list of unfinished predictions is found among those of all accounts."""
    count, size, has_more = page

    def read() -> Transaction[None]:
        found = yield from queries.page_ids("q", {}, limit)
        assert found == queries.PageIds(tuple(map(str, range(count))), size, has_more)

    reading = read()
    assert next(reading).name == "q"
    query = reading.send([{"id": str(number)} for number in range(len(sizes[: limit + 1]))])
    assert query.name == "prediction_sizes"
    measured = [sizes[int(place)] for place in json.loads(str(query.params["ids"]))]
    with pytest.raises(StopIteration):
        reading.send([{"total": total} for total in itertools.accumulate(measured)])


async def test_sqlite_measures_one_row_after_a_page(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        ids = encode_json(await _submit(pipeline, "echo", [1000] * 5))
        rows = await pipeline.database.read(many("prediction_sizes", ids=ids, page_bytes=2000))
        assert [row["total"] // 1000 for row in rows] == [1, 2]
        rows = await pipeline.database.read(many("prediction_sizes", ids=ids, page_bytes=10_000))
        assert len(rows) == 5
        rows = await pipeline.database.read(many("prediction_sizes", ids="[]", page_bytes=10_000))
        assert list(rows) == []


@pytest.mark.parametrize("backend", backends.EACH_DATABASE)
async def test_prompts_are_listed_within_the_byte_limit(tmp_path: Path, backend: str) -> None:
    backends.database_url(tmp_path, backend)
    named = {**models()}
    named["models"] = {prompt_queue.PROMPT: {**named["models"]["echo"]}, **named["models"]}
    async with running_pipeline(tmp_path, Options(start=False, models=named)) as pipeline:
        result = await _submit(pipeline, prompt_queue.PROMPT, [3 * _EIGHTH] * 4)
        tenant = Tenant(pipeline.payer.id)
        first = await pipeline.database.read(prompt_queue.first(tenant))
        assert [row["id"] for row in first] == result[:2]
        assert await pipeline.database.read(prompt_queue.count_unfinished(tenant)) == 4
        for prediction_id in result:
            await pipeline.service.cancel(prediction_id, Tenant(pipeline.payer.id))
        ended = await pipeline.database.read(prompt_queue.list_ended(tenant, 64))
        assert [row["id"] for row in ended] == result[:1:-1]
        assert not await pipeline.database.read(prompt_queue.list_ended(tenant, 0))
        assert not await pipeline.database.read(prompt_queue.first(tenant))


async def test_run_that_a_request_reads_again_is_reserved_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_LARGE_BYTES", 0)
    monkeypatch.setattr(loaded_objects, "_SMALL_BYTES", 0)
    request = memory_limit.MemoryScope()
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        first, second = await _submit(pipeline, "echo", [1, 1])
        memory_limit.scope.set(request)
        sizes: list[int] = []
        for prediction_id in (first, first, first, second):
            await pipeline.service.get_any(prediction_id)
            lease = loaded_objects._lease()
            assert lease is not None
            sizes.append(lease.size)
        request.close()
    assert 0 < sizes[0] == sizes[1] == sizes[2] < sizes[3]


async def test_large_inputs_are_reserved_until_the_request_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_objects, "_WAIT_SECONDS", 0.0)
    tenths = loaded_objects.MAX_BYTES // queries._COPIES // 10
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        fair_threads.owner.set(pipeline.payer.id)
        scopes: list[memory_limit.MemoryScope] = []

        async def submit() -> None:
            scopes.append(memory_limit.MemoryScope())
            memory_limit.scope.set(scopes[-1])
            await _submit(pipeline, "echo", [3 * tenths])

        await submit()
        with pytest.raises(errors.TooManyRequests):
            await submit()
        for scope in scopes:
            scope.close()
        await submit()
        scopes[-1].close()


@pytest.mark.parametrize("backend", backends.EACH_DATABASE)
async def test_large_runs_are_read_in_a_thread(tmp_path: Path, backend: str) -> None:
    backends.database_url(tmp_path, backend)
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        small, large = await _submit(pipeline, "echo", [1, LOOP_BYTES])
        read, in_threads = pipeline.database.read, list[tuple[str, bool]]()

        def record(transaction: Any, **options: Any) -> Any:
            in_threads.append((prediction_id, options.get("in_thread", False)))
            return read(transaction, **options)

        cast("Any", pipeline.database).read = record
        for prediction_id in (small, small, large, large, large):
            prediction = await pipeline.service.get(prediction_id, Tenant(pipeline.payer.id))
            assert prediction.id == prediction_id
        assert in_threads == [(small, False), (small, False), (large, False), (large, True), (large, True)]
        in_threads.clear()
        page, _ = await pipeline.service.page(Tenant(pipeline.payer.id), PredictionFilter(), 9, None)
        assert [each.id for each in page] == [large, small]
    # The sizes are measured before.
    assert [in_thread for _, in_thread in in_threads] == [False, True]


@pytest.mark.parametrize("backend", backends.EACH_DATABASE)
async def test_page_of_a_state_contains_its_predictions(tmp_path: Path, backend: str) -> None:
    backends.database_url(tmp_path, backend)
    change = sql.SqlStatement("UPDATE prediction SET state = :state WHERE id = :id", "", needs_now=False)
    states = list(PredictionState)
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        database = cast("Any", pipeline.database)
        database.queries = {**database.queries, "change_state": change}
        submitted = await _submit(pipeline, "echo", [1] * 3 * len(states))
        for number, prediction_id in enumerate(submitted):
            state = str(states[number % len(states)])
            await database.write(many("change_state", state=state, id=prediction_id))
        for number, state in enumerate(states):
            pages, cursor = list[str](), None
            for _ in range(3):
                filters = PredictionFilter("echo", str(state))
                page, cursor = await pipeline.service.page(Tenant(pipeline.payer.id), filters, 1, cursor)
                pages += [prediction.id for prediction in page]
            assert (pages, cursor) == (submitted[number :: len(states)][::-1], None)
            for tenant, model in ((pipeline.payer.id, "other"), ("acct_other", "echo")):
                filters = PredictionFilter(model, str(state))
                assert await pipeline.service.page(Tenant(tenant), filters, 1, None) == ((), None)
