"""A server with a certificate signs the outputs of its predictions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.provenance import c2pa_removal, certificates, embed
from tests.api.app_fixture import bearer, running_app
from tests.api.test_pages import signed_in

c2pa: Any = pytest.importorskip("c2pa", reason="needs the extra `c2pa`")


async def test_outputs_are_signed_and_equal_without_the_signature(tmp_path: Path) -> None:
    paths: dict[str, Any] = {"c2pa_certificate": tmp_path / "chain.pem", "c2pa_key": tmp_path / "key.pem"}
    for path, content in zip(paths.values(), certificates.create("Example", 30), strict=True):
        path.write_bytes(content)
    async with running_app(tmp_path / "data", **paths) as app:
        outputs = list[bytes]()
        ids = list[str]()
        for _ in range(2):
            order = {"model": "ra1", "input": {"prompt": "a fox", "seed": 7}}
            response = await app.client.post("/api/containers/run", json=order, headers=bearer(app.key))
            result = response.json()
            assert result["status"] == "succeeded", response.text
            ids.append(result["id"])
            outputs.append((await app.client.get(result["output"]["url"])).content)
        for data in outputs:
            with c2pa.Reader("image/png", io.BytesIO(data)) as reader:
                assert reader.get_validation_state() == "Valid"
            text = embed.extract(data)
            assert text is not None
            assert app.server.signer.read(text).valid
        assert outputs[0] != outputs[1]
        assert c2pa_removal.remove(outputs[0]) == c2pa_removal.remove(outputs[1])
        await signed_in(app)
        page = (await app.client.get(f"/predictions/{ids[1]}")).text
        assert "had exactly the same inputs: identical output" in page
