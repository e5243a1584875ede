"""One step of a session inside a worker, and how it is told."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from typing import cast

from sixfold.core.work.engines import Engine, EngineError
from sixfold.core.work.live import Controls, LiveEngine, Step, Stepped
from sixfold.worker import protocol


def perform(engine: Engine, order: protocol.Step) -> protocol.Stepped | protocol.Fail:
    """Take the step, or tell why it failed; never raises for what the engine does."""
    try:
        _inject(order.failpoint)
        return _told(order.number, cast("LiveEngine", engine).step(_step(order)))
    except BaseException as error:  # noqa: BLE001 - the outermost loop: whatever an engine raises ends its step
        public = isinstance(error, EngineError)
        detail = "" if public else "".join(traceback.format_exception(error))[-8_000:]
        return protocol.Fail(order.number, str(error)[:4_000] or type(error).__name__, public, detail)


def order(number: int, step: Step, failpoint: protocol.Failpoint | None) -> protocol.Step:
    """The step as a message."""
    return protocol.Step(
        number,
        step.model,
        dict(step.inputs),
        None if step.state is None else dict(step.state),
        list(step.controls.keys),
        step.controls.prompt,
        None if step.controls.waypoints is None else list(step.controls.waypoints),
        step.fps,
        step.ticks,
        step.draw,
        failpoint,
    )


def _step(message: protocol.Step) -> Step:
    waypoints = None if message.waypoints is None else tuple(message.waypoints)
    controls = Controls(tuple(message.keys), message.prompt, waypoints)
    return Step(
        message.model, message.inputs, message.state, controls, message.fps, message.ticks, message.draw
    )


def _told(number: int, stepped: Stepped) -> protocol.Stepped:
    frame = stepped.frame
    poses = [dict(pose) for pose in stepped.poses]
    if frame is None:
        return protocol.Stepped(number, dict(stepped.state), poses)
    return protocol.Stepped(
        number, dict(stepped.state), poses, frame.data, frame.format, frame.width, frame.height
    )


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
