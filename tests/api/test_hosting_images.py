"""Container images as templates: required rights, and rejected requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sixfold.core.accounts import keys, rights
from tests.api.app_fixture import AppFixture, bearer, running_app

TEMPLATES = "/api/containers/templates"


async def operators_key(app: AppFixture) -> str:
    return (await app.database.write(keys.create(app.operator.id, granted=rights.ALL))).api_key


async def test_container_images_need_the_operator_and_a_runtime(tmp_path: Path) -> None:
    async with running_app(tmp_path, container_socket=str(tmp_path / "none")) as app:
        operator = bearer(await operators_key(app))

        async def answer(body: dict[str, Any], header: dict[str, str] = operator) -> tuple[int, str]:
            response = await app.client.post(TEMPLATES, json=body, headers=header)
            return response.status_code, response.json()["error"]

        assert (await answer({"image": "a/b"}, app.bearer))[0] == 403
        assert await answer({}) == (400, "image is required")
        for wrong in ("--privileged", "a/B", "a:1:2", "a/../b", "a@sha256:1", "a" * 256):
            assert (await answer({"image": wrong}))[0] == 400, wrong
        assert (await answer({"image": "a/b", "name": "No Name"}))[0] == 400
        assert (await answer({"image": "a/b", "name": "ra1"}))[0] == 409
        status, sentence = await answer({"image": "a/b"})
        assert status == 503
        assert "install Docker or Podman" in sentence
