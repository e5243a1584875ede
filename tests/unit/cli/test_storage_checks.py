"""`doctor` names the storage, and reports whether files can be stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sixfold.cli.doctor import storage_checks
from sixfold.cli.doctor.storage_checks import StoreStatus
from sixfold.settings import Settings
from tests.harness import s3

needed = pytest.mark.skipif(bool(s3.LACKING), reason=s3.LACKING)


def look(folder: Path, **changes: Any) -> tuple[StoreStatus, ...]:
    tables = {"buckets": {"s3": s3.server().options}} if changes else {}
    configured = Settings(data_dir=folder / "data", tables=tables, blob_seconds=1, **changes)
    return asyncio.run(storage_checks.check_stores(configured))


def test_checks_create_no_folders(tmp_path: Path) -> None:
    results, uploads = look(tmp_path)
    data = tmp_path / "data"
    assert (results.where, uploads.where) == (str(data / "store"), str(data / "uploads"))
    assert [results.problem(), uploads.problem()] == [None, None]
    assert list(tmp_path.iterdir()) == []


def test_file_in_place_of_a_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    results, _ = look(tmp_path)
    assert results.record()["writable"] is False
    assert str(results.problem()).startswith("The store for results at ")


@needed
def test_check_of_a_bucket_leaves_no_object(tmp_path: Path) -> None:
    name = s3.server().new_bucket()
    result = look(tmp_path, blob_url=f"s3://{name}/store", upload_url=f"s3://{name}/uploads")
    assert [status.record()["writable"] for status in result] == [True, True]
    assert b"<Key>" not in s3.server().request("GET", f"/{name}?list-type=2")


@needed
def test_each_problem_of_a_bucket_has_its_own_message(tmp_path: Path) -> None:
    results, uploads = look(tmp_path, blob_url="s3://no-such-bucket", upload_url="ftp://bucket?secret")
    assert results.fault == "The bucket does not exist in the object store"
    assert "is not a bucket" in uploads.fault
    assert "secret" not in f"{uploads.problem()}"
    assert (
        results.problem() == f"The store for results at s3://no-such-bucket cannot be used: {results.fault}"
    )
