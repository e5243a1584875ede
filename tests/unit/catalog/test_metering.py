"""Metered charges: run time, outputs and children's costs; never above the hold."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import charges, ledger_queries
from sixfold.core.accounts.charges import CostBreakdown, LineItem
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.metering import run_time
from sixfold.core.predictions import pricing, receipt, refunds
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.child_runs import PipelineChildren
from sixfold.core.predictions.events import StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import ParentRun
from sixfold.core.predictions.states import PredictionState
from tests.harness.charge_recomputation import recomputed
from tests.harness.pipeline import HOUR, PRICE, Options, PipelineFixture, models, running_pipeline

HOUR_US = 3_600_000_000
CREDIT = 1_000_000
HELD = PriceRow(3 * PRICE, 3, "an estimate", "children")


def models_document() -> dict[str, Any]:
    document = models({"echo": "EchoEngine", "slow": "SlowEngine", "batch": "BatchEngine"})
    row = document["models"]["echo"]
    document["models"] |= {
        "hired": {**row, "price": "container-time"},
        "metered": {**row, "metered": True, "max_quantity": 10},
    }
    return document


@pytest.fixture
async def pipeline(tmp_path: Path) -> AsyncIterator[PipelineFixture]:
    async with running_pipeline(tmp_path, Options(models=models_document())) as result:
        yield result


async def read_spent(pipeline: PipelineFixture) -> int:
    assert await pipeline.faults() == ()
    account = await pipeline.account()
    assert account.held == 0
    return CREDIT - account.posted


def itemize(prediction: Prediction) -> int | None:
    """Return the cost as computed from the receipt."""
    charge = receipt.to_json(prediction)[-1].get("charge")
    return None if charge is None else recomputed(charge)


async def test_hold_covers_the_longest_run_and_charge_the_real_time(pipeline: PipelineFixture) -> None:
    quote = pipeline.service.quote("hired", {"prompt": "x"})
    assert quote.price.micros == math.ceil(HOUR * 30 / 3600), "the limit of a run is 30 seconds here"
    prediction = await pipeline.run("hired")
    assert prediction.state is PredictionState.SUCCEEDED
    assert prediction.cost == math.ceil(HOUR * prediction.durations.run / HOUR_US) > 0
    assert prediction.hardware == "gpu-24gb-a"
    assert itemize(prediction) == prediction.cost
    assert prediction.charge == CostBreakdown(prediction.cost, (run_time(prediction.durations.run, HOUR),))
    assert await read_spent(pipeline) == prediction.cost


async def test_hold_covers_all_units_and_charge_the_reported_ones(pipeline: PipelineFixture) -> None:
    response = await pipeline.run("metered", extras={"billed": 2.5})
    assert (response.price, response.cost, response.credits) == (10 * PRICE, 17_500, 2)
    assert itemize(response) == 17_500
    assert response.charge == charges.calculate((LineItem("request", 2_500_000, PRICE, 10**6),))
    untold = await pipeline.run("metered")
    assert (untold.cost, itemize(untold)) == (10 * PRICE, 10 * PRICE)
    assert await read_spent(pipeline) == 17_500 + 10 * PRICE


async def test_fraction_of_a_unit_is_charged_to_the_micro_dollar(pipeline: PipelineFixture) -> None:
    """Two seconds of a recording are 0.0333… minutes."""
    response = await pipeline.run("metered", extras={"billed": 2 / 60})
    assert response.cost == math.ceil(PRICE * 2 / 60) == 234 == itemize(response)


async def test_charge_never_exceeds_the_hold(pipeline: PipelineFixture) -> None:
    prediction = await pipeline.run("metered", extras={"billed": 99})
    assert prediction.cost == 10 * PRICE == itemize(prediction)
    assert prediction.charge is not None
    assert prediction.charge.limit == 10 * PRICE
    assert await read_spent(pipeline) == 10 * PRICE


@pytest.mark.parametrize("reported", ["-1", "1e300", "nan", "inf"])
async def test_implausible_report_is_ignored(pipeline: PipelineFixture, reported: str) -> None:
    extras = {"billed": reported, "upstream_cost": -1 if reported == "-1" else 2**63 - 1}
    prediction = await pipeline.run("metered", extras=extras)
    assert (prediction.state, prediction.attempt) == (PredictionState.SUCCEEDED, 1)
    assert prediction.cost == 10 * PRICE == itemize(prediction)
    assert await read_spent(pipeline) == 10 * PRICE


async def test_fixed_price_is_itemized_as_in_the_ledger(pipeline: PipelineFixture) -> None:
    prediction = await pipeline.run()
    assert prediction.charge == charges.calculate((LineItem("request", 1000, PRICE, 1000),))
    page = await pipeline.database.read(ledger_queries.page(prediction.account_id, 1, None))
    assert charges.decode(page.entries[0]["charge"]) == prediction.charge
    free = await pipeline.run(charged=False)
    assert (free.cost, itemize(free)) == (0, 0)


async def test_engine_lines_count_only_if_they_sum_to_its_amount(pipeline: PipelineFixture) -> None:
    prediction = msgspec.structs.replace(await pipeline.run("metered"), meter="children", rate=0, charge=None)
    right = (LineItem("ra1", 2, 3000), LineItem("tts", 1, 500))
    for lines, expected in (
        (right, right),
        ((), (LineItem("run", 1, 6500),)),
        (right[:1], (LineItem("run", 1, 6500),)),
        ((*right, LineItem("x", -1, 5)), (LineItem("run", 1, 6500),)),
        ((LineItem("x", 1, 9),) * 101, (LineItem("run", 1, 6500),)),
        ((*right, LineItem("x", 1, 1)), (LineItem("run", 1, 6500),)),
    ):
        charge = pricing.final_charge(prediction, 0, 6500.0, lines)
        assert charge is not None
        assert (charge.micros, charge.breakdown.lines) == (6500, expected)


async def test_free_run_is_not_charged_for_its_lines(pipeline: PipelineFixture) -> None:
    prediction = msgspec.structs.replace(await pipeline.run("metered"), rate=1, charge=None)
    charge = pricing.final_charge(prediction, 0, 0, (LineItem("input_tokens", 1000, 5),))
    assert charge is not None
    assert (charge.micros, charge.breakdown.amount) == (0, 0)


async def test_failed_metered_run_is_free(pipeline: PipelineFixture) -> None:
    for model in ("hired", "metered"):
        prediction = await pipeline.run(model, extras={"raise": "public", "billed": 1})
        assert (prediction.state, prediction.cost) == (PredictionState.FAILED, 0)
    assert await read_spent(pipeline) == 0


async def parent(pipeline: PipelineFixture, gate: Path) -> Prediction:
    return await pipeline.service.submit(pipeline.request("batch", extras={"gate": str(gate)}, hold=HELD))


async def test_parent_is_charged_for_children_without_holds(
    pipeline: PipelineFixture, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    parent_prediction = await parent(pipeline, gate)
    for key in ("1", "2"):
        part = await pipeline.run(parent=ParentRun(parent_prediction.id, key, parent_prediction.model))
        assert (part.parent_id, part.cost) == (parent_prediction.id, PRICE)
    assert (await pipeline.account()).held == HELD.micros
    gate.touch()
    prediction = await pipeline.service.wait(parent_prediction, 60)
    assert (prediction.cost, prediction.credits) == (2 * PRICE, 2)
    assert prediction.charge == charges.calculate((LineItem("echo", 2, PRICE),))
    assert await read_spent(pipeline) == 2 * PRICE


async def test_repeated_child_request_starts_one_prediction(
    pipeline: PipelineFixture, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    parent_prediction = await parent(pipeline, gate)
    first = await pipeline.run(parent=ParentRun(parent_prediction.id, "node 7", parent_prediction.model))
    second_prediction = await pipeline.run(
        parent=ParentRun(parent_prediction.id, "node 7", parent_prediction.model)
    )
    assert second_prediction == first
    assert first.id == ids.derived(parent_prediction.id, "node 7")
    assert len(first.id) == len(parent_prediction.id)
    gate.touch()
    assert (await pipeline.service.wait(parent_prediction, 60)).cost == PRICE


async def test_abandoned_child_ends_with_its_parent(pipeline: PipelineFixture, tmp_path: Path) -> None:
    watched = PipelineChildren(pipeline.service, pipeline.database)
    parent_prediction = await watched.parent((await parent(pipeline, tmp_path / "never")).id)
    request = pipeline.request(
        "slow", parent=ParentRun(parent_prediction.id, "1", parent_prediction.model), extras={"seconds": 3600}
    )
    orphan = await pipeline.service.submit(request)
    await pipeline.service.cancel(parent_prediction.id, Tenant.of(parent_prediction))
    assert (await pipeline.service.wait(orphan, 60)).state is PredictionState.CANCELED
    assert await read_spent(pipeline) == 0


async def test_children_of_a_canceled_parent_are_free(pipeline: PipelineFixture, tmp_path: Path) -> None:
    parent_prediction = await parent(pipeline, tmp_path / "never")
    prediction = await pipeline.run(parent=ParentRun(parent_prediction.id, "1", parent_prediction.model))
    waits = await pipeline.service.submit(
        pipeline.request(
            "slow",
            parent=ParentRun(parent_prediction.id, "2", parent_prediction.model),
            extras={"seconds": 60},
        )
    )
    await pipeline.service.cancel(waits.id, Tenant.of(waits))
    assert (await pipeline.service.wait(waits, 60)).state is PredictionState.CANCELED
    await pipeline.service.cancel(parent_prediction.id, Tenant.of(parent_prediction))
    assert (await pipeline.service.wait(parent_prediction, 60)).state is PredictionState.CANCELED
    part = await pipeline.service.get(prediction.id, Tenant.of(prediction))
    # Its output is withdrawn with that of its parent.
    assert (part.cost, itemize(part)) == (0, None)
    assert itemize(await pipeline.service.get(parent_prediction.id, Tenant.of(parent_prediction))) is None
    assert await read_spent(pipeline) == 0
    with pytest.raises(errors.Conflict):
        await pipeline.run(parent=ParentRun(parent_prediction.id, "3", parent_prediction.model))


@pytest.fixture
async def either_line(either: Path) -> AsyncIterator[PipelineFixture]:
    async with running_pipeline(either, Options(models=models_document())) as pipeline:
        yield pipeline


async def running(pipeline: PipelineFixture, prediction: Prediction) -> None:
    async with asyncio.timeout(60):
        async for event in pipeline.service.events(prediction):
            if isinstance(event, StateChanged) and event.prediction.state is PredictionState.RUNNING:
                return


@pytest.mark.parametrize("end", ["cancel", "fail"])
async def test_child_finishing_after_its_parent_keeps_no_result(
    either_line: PipelineFixture, tmp_path: Path, end: str
) -> None:
    pipeline, gate = either_line, tmp_path / "child"
    parent_prediction = await parent(pipeline, tmp_path / "never")
    request = pipeline.request(
        "batch",
        parent=ParentRun(parent_prediction.id, "1", parent_prediction.model),
        extras={"gate": str(gate)},
    )
    late = await pipeline.service.submit(request)
    await running(pipeline, parent_prediction)
    await running(pipeline, late)
    if end == "cancel":
        await pipeline.service.cancel(parent_prediction.id, Tenant.of(parent_prediction))
    else:
        attempt = (await pipeline.service.get_any(parent_prediction.id)).attempt
        await pipeline.database.write(
            predictions.fail(parent_prediction.id, attempt, predictions.FailureRecord("x", "engine"))
        )
    assert (await pipeline.service.wait(parent_prediction, 60)).is_terminal
    gate.touch()
    prediction = await pipeline.service.wait(late, 60)
    assert (prediction.state, prediction.output, prediction.cost) == (PredictionState.FAILED, None, 0)
    assert await read_spent(pipeline) == 0


async def test_unpaid_result_of_an_older_version_is_swept(
    either_line: PipelineFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = either_line
    parent_prediction = await parent(pipeline, tmp_path / "never")
    part = await pipeline.run(parent=ParentRun(parent_prediction.id, "1", parent_prediction.model))
    with monkeypatch.context() as older:
        older.setattr(refunds, "withdraw_children", lambda _parent_id: iter(()))
        await pipeline.service.cancel(parent_prediction.id, Tenant.of(parent_prediction))
        assert (await pipeline.service.wait(parent_prediction, 60)).state is PredictionState.CANCELED
    (fault,) = await pipeline.faults()
    assert fault.startswith(part.id)
    assert await pipeline.database.write(refunds.sweep_children()) == 1
    assert (await pipeline.service.get_any(part.id)).output is None
    assert await pipeline.faults() == ()
