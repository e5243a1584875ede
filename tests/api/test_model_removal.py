"""Removal of an account's models over HTTP; a trained model is removed with its images and weights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold import errors
from sixfold.core.accounts import accounts, audit_log, keys
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import ALL, STANDARD, Rights
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Transaction
from sixfold.core.predictions.history import deletion
from sixfold.core.predictions.states import PredictionState
from tests.api.app_fixture import AppFixture, bearer, running_app, small_models
from tests.api.test_comfyui_clients import PAINT
from tests.harness import image_files

TEMPLATES = "/api/containers/templates"
PICTURE = image_files.data_uri(image_files.encode(Image.new("RGB", (64, 64))))
BODY = {"name": "glow", "images": [PICTURE]}


@pytest.fixture
async def training_app(either: Path) -> AsyncIterator[AppFixture]:
    """Run a server that trains with `DotEngine`, on SQLite, then on PostgreSQL."""
    document = small_models()
    row = {**document["models"]["training"], "engines": document["models"]["ra1"]["engines"]}
    async with running_app(either, {**document, "models": {**document["models"], "training": row}}) as app:
        yield app


async def train(app: AppFixture) -> Any:
    response = await app.client.post("/api/training", json=BODY, headers=app.bearer)
    assert response.status_code == 202, response.text
    return await app.predictions.wait(
        await app.predictions.get(response.json()["id"], Tenant(app.account.id)), 60
    )


async def test_trained_model_is_removed_with_its_training(training_app: AppFixture) -> None:
    app = training_app
    training = await train(app)
    assert training.state is PredictionState.SUCCEEDED, training.error
    (file,) = training.output.files
    path = f"{TEMPLATES}/custom:glow"
    assert (await app.client.get(path, headers=app.bearer)).status_code == 200
    with pytest.raises(errors.Conflict, match="remove the model"):
        await app.database.write(deletion.delete(training.id, Tenant(app.account.id)))
    for key in (app.other, await app.limited_key(KeyLimits(services=("ra2",)))):
        assert (await app.client.delete(path, headers=bearer(key))).status_code in (403, 404)
    narrow = await app.limited_key(KeyLimits(), Rights.RUN)
    assert (await app.client.delete(path, headers=bearer(narrow))).status_code == 403
    assert (await app.client.get(f"/media/{file.name}")).status_code == 200
    assert (await app.client.delete(path, headers=app.bearer)).status_code == 204
    assert (await app.client.get(path, headers=app.bearer)).status_code == 404
    assert (await app.client.get(f"/media/{file.name}")).status_code == 404
    shown = await app.client.get(f"/api/containers/predictions/{training.id}", headers=app.bearer)
    assert shown.status_code == 404
    assert await app.balance() == ("4.00", "0.00"), "the charge remains"
    assert await app.faults() == ()
    assert (await app.client.delete(path, headers=app.bearer)).status_code == 404


async def test_training_of_a_newer_version_is_removed_as_well(training_app: AppFixture) -> None:
    app = training_app
    first, second = await train(app), await train(app)
    assert first.id != second.id
    assert (await app.client.get(f"{TEMPLATES}/custom:glow", headers=app.bearer)).status_code == 200
    assert (await app.client.delete(f"{TEMPLATES}/custom:glow", headers=app.bearer)).status_code == 204
    for training in (first, second):
        with pytest.raises(errors.NotFound):
            await app.predictions.get(training.id, Tenant(app.account.id))


async def test_only_own_models_other_than_workflows_are_removed(app: AppFixture) -> None:
    space = (await app.client.post("/api/graph/spaces", json={"workflow": PAINT}, headers=app.bearer)).json()
    for name, status in ((f"space:{space['slug']}", 409), ("ra1", 404), ("none", 404)):
        response = await app.client.delete(f"{TEMPLATES}/{name}", headers=app.bearer)
        assert response.status_code == status, name
    assert (await app.client.get(f"/api/graph/spaces/{space['slug']}", headers=app.bearer)).status_code == 200


def stored_document(name: str, **extra: Any) -> dict[str, Any]:
    """Return the document of a custom model, which runs on the engines of `ra1`."""
    row = small_models()["models"]["ra1"]
    model = {
        "title": name,
        "description": "A custom model.",
        "output_kind": row["output_kind"],
        "price": row["price"],
        "inputs": {},
        "engines": row["engines"],
    }
    return {"models": {name: model}, **extra}


async def test_removal_of_an_image_requires_operate_and_is_audited(either: Path) -> None:
    async with running_app(either) as app:
        await app.predictions.custom_models.put(app.operator.id, "model", "probe", stored_document("probe"))
        for granted, status in ((STANDARD, 403), (ALL, 204)):
            key = await app.database.write(keys.create(app.operator.id, granted=granted))
            response = await app.client.delete(f"{TEMPLATES}/probe", headers=bearer(key.api_key))
            assert response.status_code == status, response.text
        page = await app.database.read(audit_log.page(app.operator.id, 50, None))
        assert ("model.remove", "probe") in [(row["action"], row["detail"]) for row in page.entries]


async def test_own_model_with_the_name_of_a_found_one_is_removed(
    either: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(either) as app:
        await app.predictions.custom_models.put(app.operator.id, "model", "probe", stored_document("probe"))
        monkeypatch.setattr(app.predictions.catalog, "discovered", {"probe": app.predictions.catalog["ra2"]})
        headers = bearer(await app.operator_key())
        assert (await app.client.delete(f"{TEMPLATES}/probe", headers=headers)).status_code == 204
        assert (await app.client.delete(f"{TEMPLATES}/probe", headers=headers)).status_code == 403


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bg-remover", "bg-remover is built in and cannot be removed"),
        ("found", "found was found in ComfyUI or in a folder of weights: remove it there"),
    ],
)
async def test_listed_model_of_all_accounts_is_not_removed(
    either: Path, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(either) as app:
        catalog = app.predictions.catalog
        monkeypatch.setattr(catalog, "discovered", {"found": catalog["bg-remover"]})
        response = await app.client.delete(f"{TEMPLATES}/{name}", headers=app.bearer)
        assert (response.status_code, response.json()["code"]) == (403, "forbidden")
        assert response.json()["error"] == message
        assert (await app.client.get(f"{TEMPLATES}/bg-remover")).status_code == 200


async def test_model_remains_if_its_cleanup_fails(either: Path) -> None:
    def refuse() -> Transaction[None]:
        yield from accounts.operator()
        raise errors.Conflict("in use")

    async with running_app(either) as app:
        models = app.predictions.custom_models
        await models.put(app.operator.id, "model", "probe", stored_document("probe"))
        with pytest.raises(errors.Conflict, match="in use"):
            await models.remove(app.operator.id, "probe", cleanup=refuse())
        assert (await models.find("probe", app.operator.id)).name == "probe"


async def test_model_of_a_file_is_not_removed_over_http(app: AppFixture) -> None:
    document = stored_document("greet", file="greet.py")
    await app.predictions.custom_models.put(app.operator.id, "model", "greet", document)
    key = await app.database.write(keys.create(app.operator.id, granted=ALL))
    response = await app.client.delete(f"{TEMPLATES}/greet", headers=bearer(key.api_key))
    assert response.status_code == 409
    assert "comes from a file: use `sixfold model remove greet`" in response.json()["error"]
    assert (await app.client.get(f"{TEMPLATES}/greet", headers=bearer(key.api_key))).status_code == 200
