"""Runs the steps of sessions inside a worker, and converts them from and to messages."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Sequence
from typing import cast

from sixfold.core.catalog.engines import Engine, EngineError
from sixfold.core.sessions.engine import Controls, EngineStep, LiveEngine, StepRequest, StepResult
from sixfold.worker import protocol


def perform(engine: Engine, order: protocol.StepsMessage) -> protocol.TimingMessage:
    """Run the steps independently and return their answers; never raises for errors of the engine."""
    live = cast("LiveEngine", engine)
    return protocol.TimingMessage(
        order.number, [_answer(live, step, at) for at, step in enumerate(order.steps)]
    )


def order(
    number: int, asked: Sequence[StepRequest], failpoint: protocol.Failpoint | None
) -> protocol.StepsMessage:
    """Return the message that requests these steps."""
    return protocol.StepsMessage(number, [_order(ask, failpoint) for ask in asked])


def _order(ask: StepRequest, failpoint: protocol.Failpoint | None) -> protocol.StepMessage:
    held = ask.controls
    return protocol.StepMessage(
        ask.model,
        dict(ask.inputs),
        ask.state,
        list(held.keys),
        held.prompt,
        None if held.waypoints is None else list(held.waypoints),
        ask.fps,
        ask.ticks,
        ask.draw,
        failpoint,
    )


def _answer(
    engine: LiveEngine, asked: protocol.StepMessage, place: int
) -> protocol.StepResults | protocol.RunFailedMessage:
    try:
        _inject(asked.failpoint)
        return _told(engine.step(_step(asked)))
    except BaseException as error:  # noqa: BLE001 - the outermost loop: whatever an engine raises ends its step
        public = isinstance(error, EngineError)
        detail = "" if public else "".join(traceback.format_exception(error))[-8_000:]
        return protocol.RunFailedMessage(place, str(error)[:4_000] or type(error).__name__, public, detail)


def _step(asked: protocol.StepMessage) -> EngineStep:
    waypoints = None if asked.waypoints is None else tuple(asked.waypoints)
    controls = Controls(tuple(asked.keys), asked.prompt, waypoints)
    state = None if asked.state is None else protocol.decode_plain(asked.state)
    return EngineStep(asked.model, asked.inputs, state, controls, asked.fps, asked.ticks, asked.draw)


def _told(stepped: StepResult) -> protocol.StepResults:
    state = protocol.encode(dict(stepped.state))
    poses = [protocol.written(dict(pose)) for pose in stepped.poses]
    frame = stepped.frame
    if frame is None:
        return protocol.StepResults(state, poses)
    return protocol.StepResults(state, poses, frame.data, frame.format, frame.width, frame.height)


def _inject(failpoint: protocol.Failpoint | None) -> None:
    match failpoint:
        case "fail":
            raise EngineError("The model failed (injected by a failpoint).")
        case "hang":
            threading.Event().wait()
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case None:
            pass
