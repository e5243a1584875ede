"""Lists of an account's own models are paginated on every route."""

from __future__ import annotations

import json
from pathlib import Path

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import bearer, running_app

SPACES = "/api/graph/spaces"


async def test_lists_of_own_models_come_in_pages(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as works:
        graph = json.loads((await works.client.get(f"{SPACES}/api-contract/download")).content)
        for name in ("one", "two", "three"):
            response = await works.client.post(
                SPACES, json={"workflow": graph, "name": name}, headers=works.bearer
            )
            assert response.status_code == 201
        for path, key in (
            (SPACES, "spaces"),
            ("/api/services", "services"),
            ("/api/containers/templates", "templates"),
            ("/replicate/v1/models", "results"),
        ):
            full_body = (await works.client.get(path, headers=works.bearer)).json()
            rows, page = [], {"next_cursor": ""}
            while page.get("next_cursor") is not None:
                request = {"limit": "2", "cursor": page["next_cursor"]}
                page = (await works.client.get(path, params=request, headers=works.bearer)).json()
                rows += page[key]
                if following := page.get("next"):
                    page["next_cursor"] = following.rpartition("cursor=")[2].replace("%3A", ":")
            assert rows == full_body[key]
            assert (
                len(rows) == len((await works.client.get(path, headers=bearer(works.other))).json()[key]) + 3
            )
            bad = await works.client.get(path, params={"limit": "0"}, headers=works.bearer)
            # Replicate's API responds with 422 to every invalid input.
            assert bad.status_code == (422 if path.startswith("/replicate/") else 400)
        for path in ("/catalog", "/workflows"):
            assert (await works.client.get(path)).status_code == 200
