"""The fakes are faithful: the providers' own clients work with them unchanged."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.fakes import fal as fal_fake
from tests.fakes import fault_server
from tests.fakes import openai as openai_fake
from tests.fakes import replicate as replicate_fake


async def test_openai_client_generates_and_edits_images() -> None:
    openai: Any = pytest.importorskip("openai", reason="needs the test extra's openai")
    async with (
        openai_fake.running() as fake,
        openai.AsyncOpenAI(api_key=openai_fake.KEY, base_url=fake.url, max_retries=0) as client,
    ):
        drawn = await client.images.generate(
            model="gpt-image-2.5-flare", prompt="a fox", n=2, size="1536x1024", quality="low"
        )
        sizes = {openai_fake.pixels(base64.b64decode(each.b64_json)) for each in drawn.data}
        assert (len(drawn.data), sizes) == (2, {(1536, 1024)})
        assert drawn.usage.total_tokens == drawn.usage.input_tokens + drawn.usage.output_tokens
        image = ("a.png", fault_server.image(128, 96), "image/png")
        edited = await client.images.edit(model="gpt-image-2.5-flare", image=[image], prompt="noir")
        assert edited.usage.input_tokens_details.image_tokens > 0
        with pytest.raises(openai.BadRequestError) as excinfo:
            await client.images.generate(model="gpt-image-2.5-flare", prompt="a fox", size="1000x1000")
        assert excinfo.value.param == "size"
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="sk-wrong-key-of-nobody").images.generate(prompt="a fox")


async def test_fal_client_subscribes_and_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    fal_client: Any = pytest.importorskip("fal_client", reason="needs the test extra's fal-client")
    async with fal_fake.running() as fake:
        monkeypatch.setattr("fal_client.client.QUEUE_URL_FORMAT", f"{fake.url}/")
        client = fal_client.AsyncClient(key=fal_fake.KEY)
        logs: list[str] = []

        def heard(update: Any) -> None:
            logs.extend(entry["message"] for entry in getattr(update, "logs", None) or ())

        result = await client.subscribe(
            "fal-ai/flux/dev",
            {"prompt": "a fox", "num_images": 2, "seed": 3, "image_size": {"width": 512, "height": 256}},
            with_logs=True,
            on_queue_update=heard,
        )
        assert [image["width"] for image in result["images"]] == [512, 512]
        assert result["seed"] == 3
        assert "drawing" in logs
        fake.ends = False
        handle = await client.submit("fal-ai/flux/schnell", {"prompt": "a fox"})
        assert isinstance(await handle.status(), fal_client.Queued)
        assert isinstance(await handle.status(with_logs=True), fal_client.InProgress)
        await handle.cancel()
        assert fake.jobs[handle.request_id].canceled
        with pytest.raises(fal_client.client.FalClientHTTPError) as excinfo:
            await client.submit("fal-ai/flux/dev", {"prompt": 5})
        assert excinfo.value.status_code == 422
        # The client has no method that closes it.
        await (await client._client).aclose()


@pytest.mark.parametrize("quick", [True, False])
async def test_replicate_client_runs_model_version_and_stores_files(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_of: Any = pytest.importorskip("replicate.client", reason="needs the test extra's replicate")
    monkeypatch.setenv("REPLICATE_POLL_INTERVAL", "0.01")
    async with replicate_fake.running(replicate_fake.Replicate(quick=quick)) as fake:
        client = client_of.Client(api_token=replicate_fake.KEY, base_url=fake.url.removesuffix("/v1"))
        result = await client.async_run(
            "black-forest-labs/flux-schnell", {"prompt": "a fox", "num_outputs": 2, "aspect_ratio": "16:9"}
        )
        # The client opens https:// URLs itself, and returns other URLs.
        content, _ = fake.files[result[0].rpartition("/")[2]]
        with Image.open(io.BytesIO(content)) as image:
            assert (len(result), image.size) == (2, (1360, 768))
        path = tmp_path / "source.png"
        path.write_bytes(fault_server.image(64, 48))
        prediction = await client.predictions.async_create(
            version=replicate_fake.ESRGAN, input={"image": path, "scale": 2}
        )
        await prediction.async_wait()
        assert prediction.status == "succeeded"
        assert len(fake.stored) == 1
        fake.ends = False
        running = await client.predictions.async_create(
            version=replicate_fake.ESRGAN, input={"image": f"{fake.url}/files/NWU00000"}
        )
        await running.async_cancel()
        assert fake.jobs[running.id].status == "canceled"
        # The client has no method that closes it.
        client._client.close()
        await client._async_client.aclose()
