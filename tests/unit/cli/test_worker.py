"""`sixfold worker`: requirements at start, and shutdown."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.cluster import work
from tests.harness import backends, postgres, processes
from tests.unit.cli.conftest import program

pytestmark = pytest.mark.slow  # each test starts programs
SHARED = {"SIXFOLD_DATABASE_URL": "postgresql://127.0.0.1:1/nowhere", "SIXFOLD_BLOB_URL": "file:///tmp"}


@pytest.mark.parametrize(
    ("words", "environ", "message"),
    [
        (("worker",), {}, "SIXFOLD_DATABASE_URL=postgresql://"),
        (("worker",), {**SHARED, "SIXFOLD_BLOB_URL": ""}, "SIXFOLD_BLOB_URL"),
        (("worker", "--workers", "0"), SHARED, "--workers"),
        (("worker",), SHARED, "cannot be reached"),
        (("serve", "--workers", "0"), {}, "sixfold worker"),
    ],
)
def test_worker_without_usable_configuration_is_refused(
    tmp_path: Path, words: tuple[str, ...], environ: dict[str, str], message: str
) -> None:
    result = program(tmp_path, *words, **environ)
    assert (result.status, result.out) == (1, "")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.postgres
@pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one")
async def test_worker_ends_without_an_error_after_sigterm(tmp_path: Path) -> None:
    home = tmp_path / "home"
    backends.database_url(home, "postgres")
    environ = {**backends.environ(home), "SIXFOLD_BLOB_URL": f"file://{tmp_path / 'store'}"}
    # The setting applies to servers only.
    environ["SIXFOLD_PROCESSES"] = "2"
    worker = await work(home, environ)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.stdout is not None
    assert b"Stopping" in await worker.process.stdout.read()
    assert await processes.wait_for_exit(worker.process) == 0
    assert not (home / "processes").exists()
