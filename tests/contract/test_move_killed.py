"""Kill −9 in the middle of `sixfold move`: the source stays, and the next run completes the copy."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.contract import test_backup as backup_tests
from tests.contract.move_child import MOMENTS
from tests.contract.test_backup_postgres import content
from tests.contract.test_move import Installation
from tests.harness import postgres, processes, s3
from tests.harness.cases import nightly_after

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
    *s3.NEEDED,
]


@pytest.mark.parametrize("moment", nightly_after(1, MOMENTS))
def test_a_killed_move_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    old = Installation(tmp_path, monkeypatch, capsys)
    before = (backup_tests.dump(old.source), old.files(old.source))
    command = (sys.executable, "-m", "tests.contract.move_child", str(old.source.data_dir), moment)
    killed = processes.run(command, processes.STORY_SECONDS)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    committed = moment == "after commit"
    assert (old.schema() is not None) == committed, "rows are visible only after the commit"
    assert (backup_tests.dump(old.source), old.files(old.source)) == before
    result = old.sixfold.ok("move")
    assert result["rows_were_there"] == committed
    assert 0 <= result["copied"] < result["files"], "files that were copied are not copied again"
    assert content(old.target) == content(old.source)
    assert old.files(old.target) == before[1]
    assert old.sixfold.ok("ledger", "verify") == {"ok": True, "faults": [], "archived": 0}
