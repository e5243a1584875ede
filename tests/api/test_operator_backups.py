"""Backups that operators start, download and delete on the pages and over HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from sixfold import errors
from sixfold.app import backups as app_backups
from sixfold.cli.main import main
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions
from sixfold.core.configuration.ports import BackupView
from tests.api import browser
from tests.api.app_fixture import AppFixture, bearer
from tests.api.browser import TabOptions
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_pages import signed_in
from tests.harness.waiting import wait_until
from tests.mcp.loopback import serve

ROOT = "/api/operator/backups"
ACTOR = Principal("acct_1", "operator", "ann@example.com")


async def ended(app: AppFixture) -> tuple[BackupView, ...]:
    """Return the backups when none is being written any more."""

    async def are_written() -> bool:
        return all(view.state != "running" for view in await app.server.operator.backups.view())

    await wait_until(are_written, 120)
    return await app.server.operator.backups.view()


async def noted(app: AppFixture) -> list[str]:
    page = await app.database.read(actions.page(9, None, "backups."))
    return [each.action for each in page.actions]


async def test_backup_is_written_downloaded_restored_and_deleted(
    any_database_app: AppFixture, tmp_path: Path
) -> None:
    app = any_database_app
    headers = bearer(await app.operator_key())
    started = await app.client.post(ROOT, headers=headers)
    assert started.status_code == 202, started.text
    (row,) = started.json()["backups"]
    assert row["state"] in {"running", "ready"}
    (view,) = await ended(app)
    assert (view.state, view.problem, view.name) == ("ready", "", row["name"])
    downloaded = await app.client.get(f"{ROOT}/{view.name}", headers=headers)
    assert downloaded.headers["content-disposition"] == f'attachment; filename="{view.name}"'
    assert len(downloaded.content) == view.size_bytes
    part = await app.client.get(f"{ROOT}/{view.name}", headers={**headers, "Range": "bytes=0-99"})
    assert (part.status_code, part.content) == (206, downloaded.content[:100])
    file = tmp_path / "downloaded.tar"
    file.write_bytes(downloaded.content)
    # A backup of either database can be restored into SQLite.
    restore = ["restore", str(file), "--data-dir", str(tmp_path / "new")]
    assert await asyncio.to_thread(main, restore) == 0
    deletion = await app.client.delete(f"{ROOT}/{view.name}", headers=headers)
    assert deletion.json() == {"backups": []}
    assert not list((app.settings.data_dir / "backups").glob("sixfold-*"))
    assert await noted(app) == ["backup.remove", "backup.download", "backup.download", "backup.start"]


def writing_process(folder: Path, name: str, space: str = "") -> subprocess.Popen[bytes]:
    """Start a process that holds the lock as if it wrote a backup, in another `space` of process ids."""
    folder.mkdir()
    (folder / f"{name}.log").touch()
    (folder / f"{name}.tmp").write_bytes(b"x" * 100)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    process = subprocess.Popen(["sleep", "600"], start_new_session=True, pass_fds=(lock,))
    os.write(lock, f"{process.pid} {space or app_backups._process_space()} {name}".encode())
    os.close(lock)
    return process


async def test_backup_in_progress_is_exclusive_and_can_be_stopped(app: AppFixture) -> None:
    headers = bearer(await app.operator_key())
    name = "sixfold-20261130-070000.tar"
    process = writing_process(app.settings.data_dir / "backups", name)
    refused = await app.client.post(ROOT, headers=headers)
    assert (refused.status_code, "A backup is being written" in refused.text) == (409, True)
    (row,) = (await app.client.get(ROOT, headers=headers)).json()["backups"]
    assert (row["state"], row["bytes"], row["created_at"]) == ("running", 100, "2026-11-30T07:00:00.000Z")
    assert (await app.client.get(f"{ROOT}/{name}", headers=headers)).status_code == 404
    stopped = await app.client.delete(f"{ROOT}/{name}", headers=headers)
    assert stopped.json() == {"backups": []}
    assert process.wait() != 0
    assert await noted(app) == ["backup.stop"]


async def test_process_with_the_id_of_another_container_is_not_killed(app: AppFixture) -> None:
    headers = bearer(await app.operator_key())
    name = "sixfold-20261130-070000.tar"
    process = writing_process(app.settings.data_dir / "backups", name, "another-container")
    try:
        (row,) = (await app.client.get(ROOT, headers=headers)).json()["backups"]
        assert row["state"] == "running"
        refused = await app.client.delete(f"{ROOT}/{name}", headers=headers)
        assert (refused.status_code, "in another container" in refused.text) == (409, True)
        assert process.poll() is None
        assert (app.settings.data_dir / "backups" / f"{name}.tmp").exists()
    finally:
        process.kill()
        process.wait()


async def test_backup_being_started_is_not_the_previous_one(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups, before = app.server.operator.backups, "sixfold-20261130-070000.tar"
    folder = app.settings.data_dir / "backups"
    folder.mkdir()
    (folder / before).write_bytes(b"x")
    (folder / "lock").write_text(f"{os.getpid()} {app_backups._process_space()} {before}")
    seen: list[BackupView] = []

    def spawn(*_arguments: object, **_options: object) -> None:
        """Fail as if the machine had no more processes, after looking at the backups."""
        seen.extend(asyncio.run(backups.view()))
        with pytest.raises(errors.Conflict, match="is being started"):
            asyncio.run(backups.remove(ACTOR, seen[0].name))
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", spawn)
    with pytest.raises(OSError, match="no more"):
        await backups.start(ACTOR)
    assert [(view.name == before, view.state) for view in seen] == [(False, "running"), (True, "ready")]


async def test_backup_starts_while_another_page_shows_the_list(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = app.settings.data_dir / "backups"
    folder.mkdir()
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    monkeypatch.setattr(app_backups, "time", SimpleNamespace(sleep=lambda _: os.close(lock)))
    started = await app.client.post(ROOT, headers=bearer(await app.operator_key()))
    assert started.status_code == 202, started.text
    await ended(app)


async def test_failed_backup_states_the_reason(app: AppFixture) -> None:
    headers = bearer(await app.operator_key())
    folder = app.settings.data_dir / "backups"
    folder.mkdir()
    (folder / "sixfold-20261130-070000.tar.log").write_text("sixfold: no space left on device\n")
    (folder / "sixfold-20261130-080000.tar.log").touch()
    rows = (await app.client.get(ROOT, headers=headers)).json()["backups"]
    assert [(row["state"], row["problem"]) for row in rows] == [
        ("failed", "The backup was interrupted: start another one"),
        ("failed", "sixfold: no space left on device"),
    ]


@pytest.mark.parametrize("name", ["..", "lock", "sixfold-20261130-070000.tar.log", "%2e%2e%2fserver.key"])
async def test_only_backups_can_be_downloaded(app: AppFixture, name: str) -> None:
    headers = bearer(await app.operator_key())
    folder = app.settings.data_dir / "backups"
    folder.mkdir()
    (folder / "sixfold-20261130-070000.tar.log").write_text("log")
    (folder / "lock").touch()
    assert (await app.client.get(f"{ROOT}/{name}", headers=headers)).status_code in {404, 405}


async def test_backups_are_only_for_operators(app: AppFixture) -> None:
    for method, path in (("GET", ROOT), ("POST", ROOT), ("GET", f"{ROOT}/x"), ("DELETE", f"{ROOT}/x")):
        assert (await app.client.request(method, path, headers=app.bearer)).status_code == 403
    await signed_in(app, app.account)
    assert (await app.client.get("/admin/backups")).status_code == 404


@pytest.mark.browser
@browser.needed
@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_operator_starts_and_downloads_a_backup_at_each_width(app: AppFixture, width: int) -> None:
    operator = dataclasses.replace(app, account=app.operator)
    async with (
        serve(app.asgi) as url,
        browser.browser() as chromium,
        browser.tab(chromium, operator, url, TabOptions(width=width)) as tab,
    ):
        await tab.open("/admin/backups")
        await tab.page.click("text='Start a backup now'")
        await tab.page.wait_for_selector(".flag:has-text('complete')")
        async with tab.page.expect_download() as download:
            await tab.page.click("text='Download'")
        assert (await download.value).suggested_filename.startswith("sixfold-")
        assert await violations(tab.page) == []
        assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        await tab.page.click("text='Delete'")
        await tab.page.wait_for_selector("text='No backups yet.'")
