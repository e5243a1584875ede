"""Container images as templates: who may add them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sixfold.core.accounts import keys, rights
from tests.api.app_fixture import House, bearer, house

TEMPLATES = "/api/containers/templates"


async def operators_key(home: House) -> str:
    return (await home.product.database.write(keys.create(home.operator.id, granted=rights.ALL))).api_key


async def test_images_are_the_operators_to_add_and_need_what_starts_them(tmp_path: Path) -> None:
    async with house(tmp_path, container_socket=str(tmp_path / "none")) as home:
        operator = bearer(await operators_key(home))

        async def answer(body: dict[str, Any], header: dict[str, str] = operator) -> tuple[int, str]:
            got = await home.client.post(TEMPLATES, json=body, headers=header)
            return got.status_code, got.json()["error"]

        assert (await answer({"image": "a/b"}, home.bearer))[0] == 403
        assert await answer({}) == (400, "image is required")
        for wrong in ("--privileged", "a/B", "a:1:2", "a/../b", "a@sha256:1", "a" * 256):
            assert (await answer({"image": wrong}))[0] == 400, wrong
        assert (await answer({"image": "a/b", "name": "No Name"}))[0] == 400
        assert (await answer({"image": "a/b", "name": "ra1"}))[0] == 409
        status, sentence = await answer({"image": "a/b"})
        assert status == 503
        assert "install Docker or Podman" in sentence
