"""Sandboxed programs work and cannot access this machine; with a real Bubblewrap."""

from __future__ import annotations

import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold import disk_space
from sixfold.clients import bubblewrap
from sixfold.core.catalog.engines import Task
from sixfold.core.workers.ports import Outcome, RunCompleted, RunFailed, WorkerLost, WorkerSpec
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.drivers.process import ProcessWorker
from sixfold.drivers.sandbox import SandboxDriver
from tests.contract.test_driver import RecordedReports, remaining_files

PROGRAM = '''
import json, os, pathlib, socket, subprocess, sys
from typing import Any
import sixfold

def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__

def connected(port):
    with socket.create_connection(("127.0.0.1", port), 1):
        return "reached"

PROBES = {
    "work": lambda given: pathlib.Path(given).read_text(),
    "read": lambda given: pathlib.Path(given).read_text(),
    "write": lambda given: pathlib.Path(given, "new").write_text("x"),
    "overwrite": lambda given: pathlib.Path(given).write_text("x"),
    "list": lambda given: sorted(os.listdir(given)),
    "net": lambda given: connected(int(given)),
    "signal": lambda given: os.kill(int(given), 9),
    "env": lambda given: pathlib.Path("/proc/self/environ").read_text().split(chr(0)),
    "others": lambda given: [pid for pid in os.listdir("/proc") if pid.isdigit()],
    "found": lambda given: sorted({where[4][0] for where in socket.getaddrinfo(given, 80)}),
    "interfaces": lambda given: [name for _, name in socket.if_nameindex()],
    "root": lambda given: [os.getuid(), pathlib.Path("/proc/self/status").read_text().count("0" * 16)],
    "namespace": lambda given: subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode,
}

@sixfold.model(name="probe")
def probe(do: str, given: str = "", file: pathlib.Path | None = None) -> Any:
    """Try to get out."""
    if do == "die":
        subprocess.Popen(["sleep", "1000"])
        os._exit(3)
    if do == "fill":
        with open("filled", "wb") as filled:
            while filled.tell() < 2**30:
                filled.write(bytes(2**20))
        while True:
            pass
    if do == "link":
        target = pathlib.Path("out.txt")
        target.symlink_to(given)
        return target
    if do == "file":
        target = pathlib.Path("out.txt")
        target.write_text(file.read_text().upper())
        tried(lambda: file.write_text("spoilt"))
        return target
    return {"got": tried(lambda: PROBES[do](given))}
'''


@pytest.fixture
async def driver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SandboxDriver]:
    if fault := bubblewrap.fault():
        pytest.skip(fault)
    monkeypatch.setenv("SIXFOLD_FAL_KEY", "a-secret-key")
    result = SandboxDriver()
    yield result
    await result.close()


@pytest.fixture
async def worker(driver: SandboxDriver, tmp_path: Path) -> ProcessWorker:
    return await driver.start(spec(tmp_path))


def spec(folder: Path) -> WorkerSpec:
    program = folder / "probe.py"
    program.write_text(PROGRAM, "utf-8")
    options: dict[str, Any] = {
        "factory": "sixfold.engines.python_models.engine:FunctionEngine",
        "options": {"path": str(program), "version": "1"},
        "readable": [str(program)],
    }
    return WorkerSpec("own", "sandbox", 1 << 30, folder / "scratch", options=options)


async def run(worker: ProcessWorker, do: str, inputs: object = "", **files: Path) -> Outcome:
    return await worker.run(
        Task("t", "m", {"do": do, "given": str(inputs)}, files), RecordedReports().reports()
    )


async def probe_result(worker: ProcessWorker, do: str, inputs: object = "") -> Any:
    outcome = await run(worker, do, inputs)
    assert isinstance(outcome, RunCompleted), outcome
    return outcome.data["got"]


async def test_program_works_on_copies_of_its_files(
    worker: ProcessWorker, driver: SandboxDriver, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("words")
    outcome = await run(worker, "file", file=tmp_path / "in.txt")
    assert isinstance(outcome, RunCompleted), outcome
    assert [file.path.read_text() for file in outcome.files] == ["WORDS"]
    assert (tmp_path / "in.txt").read_text() == "words"
    await driver.close()
    assert remaining_files(tmp_path / "scratch") == [outcome.files[0].path.name]


async def test_worker_is_killed_before_its_files_fill_the_disk(
    worker: ProcessWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "_RESERVE_PART", 1)
    monkeypatch.setattr(disk_space, "_RESERVE_BYTES", shutil.disk_usage(tmp_path).free - 2**26)
    lost = await run(worker, "fill")
    assert isinstance(lost, WorkerLost)
    assert "MiB of the disk were free" in lost.reason
    assert remaining_files(tmp_path / "scratch") == []


async def test_files_of_the_user_are_not_accessible(worker: ProcessWorker, tmp_path: Path) -> None:
    secret = tmp_path / "local.key"
    secret.write_text("sf_secret")
    assert await probe_result(worker, "read", secret) == "FileNotFoundError"
    assert await probe_result(worker, "read", "/etc/passwd") == "FileNotFoundError"
    assert "home" not in await probe_result(worker, "list", "/")
    assert set(await probe_result(worker, "list", tmp_path)) <= {"__pycache__", "probe.py", "scratch"}
    assert await probe_result(worker, "overwrite", tmp_path / "probe.py") == "OSError"
    for folder in ("/", "/usr", "/etc", Path(bubblewrap.__file__).parent):
        assert await probe_result(worker, "write", folder) in ("OSError", "PermissionError")


async def test_network_processes_keys_and_privileges_are_unavailable(worker: ProcessWorker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as near:
        assert await probe_result(worker, "net", near.getsockname()[1]) == "ConnectionRefusedError"
    assert await probe_result(worker, "interfaces") == ["lo"]
    assert len(await probe_result(worker, "others")) <= 3, "itself and what holds it"
    assert await probe_result(worker, "signal", worker.pid or 0) == "ProcessLookupError"
    assert not [name for name in await probe_result(worker, "env") if "KEY" in name or "SIXFOLD" in name]
    user, empty_sets = await probe_result(worker, "root")
    assert user != 0
    assert empty_sets >= 4, "no capability, in any of its sets"
    assert await probe_result(worker, "namespace") != 0


async def test_only_its_own_host_name_is_resolved(worker: ProcessWorker) -> None:
    assert "127.0.0.1" in await probe_result(worker, "found", "localhost")
    assert await probe_result(worker, "found", "sixfold") == ["127.0.0.1"], "the host's name inside"
    assert (await probe_result(worker, "read", "/etc/hosts")).split()[:2] == ["127.0.0.1", "localhost"]
    assert await probe_result(worker, "found", "models.example") == "gaierror"


async def test_output_symlink_is_not_followed(worker: ProcessWorker, tmp_path: Path) -> None:
    (tmp_path / "local.key").write_text("sf_secret")
    outcome = await run(worker, "link", tmp_path / "local.key")
    assert isinstance(outcome, RunFailed), outcome


async def test_sandbox_that_ends_is_a_lost_worker(worker: ProcessWorker) -> None:
    outcome = await run(worker, "die")
    assert isinstance(outcome, WorkerLost)
    assert not worker.alive


async def test_syntax_error_of_a_program_is_reported(driver: SandboxDriver, tmp_path: Path) -> None:
    expected = spec(tmp_path)
    (tmp_path / "probe.py").write_text("def broken(:\n", "utf-8")
    with pytest.raises(StartFailed, match="line 1: invalid syntax"):
        await driver.start(expected)
    assert remaining_files(tmp_path / "scratch") == []
