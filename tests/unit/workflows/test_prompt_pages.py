"""Pages of ComfyUI's queue and history: prompts are decoded one by one, and not for an interrupt."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sixfold.api.workflows.comfyui import queue
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workflows.comfyui import prompt_queue
from sixfold.core.workflows.comfyui.prompt_queue import UnfinishedPrompt

OURS = Tenant("acct_1")


def result_of(transaction: Any, *responses: Any) -> Any:
    """Return the result of a transaction whose queries have these responses."""
    next(transaction)
    for rows in responses[:-1]:
        transaction.send(rows)
    with pytest.raises(StopIteration) as excinfo:
        transaction.send(responses[-1])
    return excinfo.value.value


async def test_prompts_are_decoded_in_several_loop_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, decoded = 0, list[int]()

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def from_row(_row: object) -> object:
        decoded.append(turn)
        return SimpleNamespace()

    monkeypatch.setattr(Prediction, "from_row", from_row)
    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    row = {"inputs": "", "task": "x" * (LOOP_BYTES * 3 // 4), "output": None, "logs": ""}
    assert len([each async for each in queue._decoded([cast("Any", row)] * 5)]) == 5
    counting.cancel()
    assert len(set(decoded)) == 5


def test_pages_and_interrupts_decode_no_graph() -> None:
    undecodable: list[Any] = [{"id": "pred_1", "task": "{", "prompt_id": None, "state": "running"}]
    found = [{"id": "pred_1"}], [{"size": 1, "total": 1}], undecodable
    assert result_of(prompt_queue.first(OURS), *found) == undecodable
    assert result_of(prompt_queue.list_ended(OURS, 9), *found) == undecodable
    (prompt,) = result_of(prompt_queue.under_way(OURS), [{"id": "pred_1"}], undecodable)
    assert prompt == UnfinishedPrompt("pred_1", "pred_1", PredictionState.RUNNING)
