"""Execution of session steps inside a worker, and their conversion from and to messages."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Sequence
from typing import cast

from sixfold.core.catalog.engines import Engine, EngineError
from sixfold.core.sessions.engine import EngineStep, LiveEngine, StepRequest, StepResult
from sixfold.worker import protocol


def run_steps(engine: Engine, message: protocol.StepsMessage) -> protocol.StepsDone:
    """Run the steps independently and return their results; never raises for errors of the engine."""
    live = cast("LiveEngine", engine)
    return protocol.StepsDone(
        message.number, [_run_step(live, step, index) for index, step in enumerate(message.steps)]
    )


def steps_message(
    number: int, requests: Sequence[StepRequest], failpoint: protocol.Failpoint | None
) -> protocol.StepsMessage:
    return protocol.StepsMessage(number, [_step_message(request, failpoint) for request in requests])


def _step_message(request: StepRequest, failpoint: protocol.Failpoint | None) -> protocol.StepMessage:
    return protocol.StepMessage(
        request.model,
        dict(request.inputs),
        request.state,
        request.controls,
        request.fps,
        request.ticks,
        request.draw,
        failpoint,
    )


def _run_step(
    engine: LiveEngine, message: protocol.StepMessage, index: int
) -> protocol.StepDone | protocol.RunFailedMessage:
    try:
        _apply(message.failpoint)
        return _encode_result(engine.step(_engine_step(message)))
    except BaseException as error:  # noqa: BLE001 - the outermost loop: an exception of an engine ends its step
        public = isinstance(error, EngineError)
        detail = "" if public else "".join(traceback.format_exception(error))[-8_000:]
        return protocol.RunFailedMessage(index, str(error)[:4_000] or type(error).__name__, public, detail)


def _engine_step(message: protocol.StepMessage) -> EngineStep:
    state = None if message.state is None else protocol.decode_plain(message.state)
    return EngineStep(
        message.model, message.inputs, state, message.controls, message.fps, message.ticks, message.draw
    )


def _encode_result(result: StepResult) -> protocol.StepDone:
    state = protocol.encode(dict(result.state))
    poses = [protocol.encode_json(dict(pose)) for pose in result.poses]
    frame = result.frame
    if frame is None:
        return protocol.StepDone(state, poses, words=result.words)
    return protocol.StepDone(state, poses, frame.data, frame.format, frame.width, frame.height, result.words)


def _apply(failpoint: protocol.Failpoint | None) -> None:
    match failpoint:
        case "fail":
            raise EngineError("The model failed (injected by a failpoint).")
        case "hang":
            threading.Event().wait()
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case None:
            pass
