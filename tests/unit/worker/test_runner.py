"""One run in a worker: reports, end, and leftovers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import pytest

from sixfold.core.catalog.engines import (
    Artifact,
    Canceled,
    Context,
    EngineError,
    PreviewContext,
    Result,
    Task,
)
from sixfold.worker import protocol, runner


@dataclass
class RecordedReports:
    """A sink that keeps what it gets."""

    fractions: list[float] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)

    def log(self, line: str) -> None:
        self.lines.append(line)

    def preview(self, content: bytes) -> None:
        self.images.append(content)


class Does:
    """Engine that calls a function."""

    name = "does"
    version = "7"

    def __init__(self, act: Callable[[Context], Result]) -> None:
        self.act = act

    def run(self, task: Task, context: Context) -> Result:
        return self.act(context)


def perform(
    act: Callable[[Context], Result], scratch: Path, canceled: bool = False
) -> tuple[protocol.Reply, RecordedReports]:
    reports, event = RecordedReports(), threading.Event()
    if canceled:
        event.set()
    context = runner.RunContext(reports, event, scratch / "run")
    assignment = runner.Assignment(1, Task("t", "m", {}), context, runner.FileStaging(scratch, "w-1"))
    reply = runner.perform(Does(act), assignment)
    return reply, reports


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_progress_never_falls_and_stays_within_0_and_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PROGRESS_SECONDS", 0)

    def act(context: Context) -> Result:
        for fraction in (-1, 0.2, 0.1, 0.5, 7, 0.9):
            context.progress(fraction)
        return Result()

    assert perform(act, tmp_path)[1].fractions == [0, 0.2, 0.5, 1]


def test_a_partial_image_is_sent_unless_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_PREVIEW_BYTES", 8)

    def act(context: Context) -> Result:
        assert isinstance(context, PreviewContext)
        for image in (b"small", b"too large"):
            context.preview(image)
        return Result()

    assert perform(act, tmp_path)[1].images == [b"small"]


def test_the_last_progress_of_a_failure_is_not_held_back(tmp_path: Path) -> None:
    def act(context: Context) -> Result:
        for step in range(6):
            context.progress(step / 10)
        raise EngineError("no")

    reply, reports = perform(act, tmp_path)
    assert reply == protocol.RunFailedMessage(1, "no", public=True)
    assert reports.fractions == [0, 0.5]


def test_a_log_is_cut_off_at_its_limits(tmp_path: Path) -> None:
    def act(context: Context) -> Result:
        context.log("x" * 10_000)
        for number in range(runner.MAX_LOG_LINES * 2):
            context.log(str(number))
        return Result()

    lines = perform(act, tmp_path)[1].lines
    assert len(lines[0]) == runner.MAX_LINE_CHARACTERS
    assert len(lines) == runner.MAX_LOG_LINES
    assert lines[-1] == "(the log is cut off here)"


def test_canceled_run_stops_and_leaves_no_files(tmp_path: Path) -> None:
    def act(context: Context) -> Result:
        context.progress(0.5)
        return Result((Artifact("text/plain", b"x"),))

    assert perform(act, tmp_path, canceled=True)[0] == protocol.RunHalted(1)
    assert names(tmp_path) == []


def test_unrequested_cancellation_is_a_failure_of_the_engine(tmp_path: Path) -> None:
    def act(context: Context) -> Result:
        raise Canceled

    reply = perform(act, tmp_path)[0]
    assert isinstance(reply, protocol.RunFailedMessage)
    assert not reply.public


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), RecursionError()])
def test_errors_of_an_engine_become_failure_messages(tmp_path: Path, error: BaseException) -> None:
    def act(context: Context) -> Result:
        raise error

    reply = perform(act, tmp_path)[0]
    assert isinstance(reply, protocol.RunFailedMessage)
    assert type(error).__name__ in reply.message


def test_out_of_memory_in_opencv_has_its_own_message(tmp_path: Path) -> None:
    def act(context: Context) -> Result:
        error = cv2.error("no memory")
        error.code = cv2.Error.StsNoMem
        raise error

    assert perform(act, tmp_path)[0] == protocol.RunFailedMessage(1, runner.OUT_OF_MEMORY, public=True)


def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "w-1-1").symlink_to(tmp_path / "elsewhere")
    files = (Artifact("text/plain", b"first"), Artifact("text/plain", b"second"))
    reply = perform(lambda _: Result(files), tmp_path)[0]
    assert isinstance(reply, protocol.RunFailedMessage)
    assert "w-1-0" not in names(tmp_path), "all files or none"
    assert "elsewhere" not in names(tmp_path)


def test_unserializable_data_fails_the_run_without_files(tmp_path: Path) -> None:
    result = Result((Artifact("text/plain", b"x"),), {"k": object()})
    reply = perform(lambda _: result, tmp_path)[0]
    assert isinstance(reply, protocol.RunFailedMessage)
    assert names(tmp_path) == []


def test_result_larger_than_a_frame_fails_with_the_limit(tmp_path: Path) -> None:
    result = Result(data={"text": "x" * protocol.MAX_FRAME_BYTES})
    reply = perform(lambda _: result, tmp_path)[0]
    assert isinstance(reply, protocol.RunFailedMessage)
    assert reply.public
    assert f"at most {protocol.MAX_FRAME_BYTES:,} bytes (got " in reply.message


def test_random_state_is_reset_for_each_run(tmp_path: Path) -> None:
    def act(context: Context) -> Result:
        noise = np.zeros((4, 4), np.uint8)
        cv2.randu(noise, np.array([0]), np.array([255]))
        return Result(data={"numpy": np.random.rand(), "cv2": noise})

    first, second = (perform(act, tmp_path)[0] for _ in range(2))
    assert isinstance(first, protocol.RunDone)
    assert isinstance(second, protocol.RunDone)
    assert protocol.encode(first.data) == protocol.encode(second.data)
