"""Database and blob store on which the folder of a test runs.

By default the suite runs on SQLite and files, and the tests of contracts and of money on every
backend. `pytest --ground=postgres+s3`, or `SIXFOLD_TEST_GROUND=postgres+s3`, runs the whole suite on
PostgreSQL and S3; `postgres` or `s3` alone replaces one of the two.

The choice is recorded in the folder, so that this process or a child that opens the folder again uses
the same backends. A test that restarts a server only has to reuse its folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness import postgres, s3

if TYPE_CHECKING:
    from sixfold.core.media.ports import BlobStore

DATABASES, BLOBS = ("sqlite", "postgres"), ("files", "s3")
# Settings for SQLite and files, for tests whose results do not depend on the stores.
FILES: dict[str, Any] = {"database_url": "", "blob_url": "", "upload_url": ""}
EACH_DATABASE = [pytest.param("sqlite"), pytest.param("postgres", marks=pytest.mark.postgres)]
DATABASE_FILE, BLOB_FILE = "database.url", "blob.url"
_chosen = {"database": "sqlite", "blobs": "files", "run": ""}


def choose(text: str, run: str) -> None:
    """Set the backends of new folders: `postgres+s3`, or one of its halves.

    `run` names the test run; the processes of one run share their servers.
    """
    _chosen["run"] = run
    for name in filter(None, text.split("+")):
        if name not in (*DATABASES, *BLOBS):
            raise pytest.UsageError(f"--ground takes {', '.join((*DATABASES, *BLOBS))}, not {name!r}")
        _chosen["database" if name in DATABASES else "blobs"] = name


def chosen_database() -> str:
    """Return the database of the whole suite: `sqlite` or `postgres`."""
    return _chosen["database"]


def database_url(folder: Path, backend: str | None = None) -> str:
    """Return the database URL of a test's folder, empty for a SQLite file in it.

    The first call records the backend (`backend`, or the suite's); later calls in any process reuse it.
    """
    makers = {"sqlite": _file, "postgres": _postgres}
    return _laid(folder / DATABASE_FILE, backend, _chosen["database"], makers)


def blob_url(folder: Path, backend: str | None = None) -> str:
    """Return the blob store URL of a test's folder, empty for files in it. See `database_url`."""
    text = _laid(folder / BLOB_FILE, backend, _chosen["blobs"], {"files": _file, "s3": _s3})
    url, _, endpoint = text.partition("\n")
    if endpoint:  # obstore reads the endpoint from the environment, in this process and in its children.
        for name, value in s3.environment(endpoint).items():
            os.putenv(name, value)
    return url


def open_blobs(folder: Path) -> BlobStore:
    from sixfold.app import storage  # noqa: PLC0415 - conftest comes before the product
    from sixfold.settings import Settings  # noqa: PLC0415 - the same

    return storage.open_blobs(Settings(data_dir=folder, blob_url=blob_url(folder)))


def break_blobs(folder: Path) -> None:
    """Make every write to the blob store of a test's folder fail; it must still be empty."""
    url = blob_url(folder)
    if url:
        s3.server().request("DELETE", f"/{url.removeprefix('s3://').partition('/')[0]}")
    else:
        (folder / "store").mkdir(exist_ok=True)
        (folder / "store" / "blobs").write_text("a file where a folder should be")


def settings(folder: Path) -> dict[str, Any]:
    """Return the settings that run a product in this process on the backends of `folder`."""
    urls = {"database_url": database_url(folder), "blob_url": blob_url(folder)}
    if urls["blob_url"]:
        urls["upload_url"] = f"{urls['blob_url'].removesuffix('/store')}/uploads"
    return {name: url for name, url in urls.items() if url}


def environ(folder: Path) -> dict[str, str]:
    """Return the environment variables that run a server process on the backends of `folder`."""
    inputs = {f"SIXFOLD_{name.upper()}": value for name, value in settings(folder).items()}
    return inputs | (s3.environment(s3.server().endpoint) if blob_url(folder) else {})


def _laid(note: Path, backend: str | None, chosen: str, makers: dict[str, Any]) -> str:
    if note.exists():
        return note.read_text("utf-8")
    url = makers[backend or chosen]()
    if url or backend:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(url, "utf-8")
    return url


def _file() -> str:
    return ""


def _s3() -> str:
    """Return the name of a new bucket and, on the next line, the endpoint of its server."""
    if s3.LACKING:
        pytest.skip(f"{s3.LACKING}: the extra `test` has it")
    server = s3.server()
    return f"s3://{server.new_bucket()}/store\n{server.endpoint}"


def shared_folder(name: str) -> Path:
    """Return a path that the processes of one test run share, for the data of a shared server."""
    folder = _run_folder()
    folder.mkdir(exist_ok=True)
    return folder / name


def stop() -> None:
    """Stop the servers of this run and remove their folder, after its last process."""
    postgres.stop(_run_folder() / "postgres")
    shutil.rmtree(_run_folder(), ignore_errors=True)


def _run_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"sixfold-tests-{_chosen['run']}"


def postgres_databases() -> postgres.Databases:
    """Return the databases of this run; skip the test if PostgreSQL is not installed."""
    if postgres.LACKING:
        pytest.skip(f"{postgres.LACKING}: the extra `test` has it")
    return postgres.Databases(shared_folder("postgres"))


def _postgres() -> str:
    """Return the URL of an empty database with the current schema."""
    return postgres_databases().lend()


def forget() -> None:
    """Reclaim the databases that were lent since the last call."""
    if postgres.is_lent():
        postgres_databases().take_back()
