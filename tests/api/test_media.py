"""The Media API: every response, and the order in which a request is checked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import AppFixture, bearer, running_app, small_models
from tests.api.media_samples import finished_job
from tests.harness.waiting import wait_until

RA1 = ("/api/ra1-art-generator", "/api/ra1")
ANIME = ("/api/anime-art-generator", "/api/anime")
BAD_KEY = {"error": "Invalid API key", "status": 401}
NO_CREDIT = {"error": "Insufficient credits", "status": 402}


def body_with(app: AppFixture, **more: Any) -> dict[str, Any]:
    """Return a valid body, with changes."""
    return {"api_key": app.key, "prompt": "a fox", **more}


@pytest.mark.parametrize("path", RA1)
async def test_ra1_returns_an_image_for_four_cents(app: AppFixture, path: str) -> None:
    response = await app.client.post(path, json=body_with(app, size="1360x768"))
    assert response.status_code == 200
    body = response.json()
    url = body.pop("image_url")
    assert body == {
        "prompt_used": "a fox",
        "size_used": "1360x768",
        "cost": "0.04",
        "credits_charged": 4,
        "request_id": response.headers["X-Request-Id"],
    }
    assert response.headers["X-Sixfold-Engine"] == "scene-painter"
    assert response.headers["X-Sixfold-Quality"] == "full"
    image = await app.client.get(url)
    assert image.headers["Content-Type"] == "image/png"
    assert image.content.startswith(b"\x89PNG")
    assert await app.balance() == ("4.96", "0.00")
    assert await app.faults() == ()


@pytest.mark.parametrize("path", ANIME)
async def test_anime_returns_several_images_at_0_7_cents_each(app: AppFixture, path: str) -> None:
    response = await app.client.post(path, json=body_with(app, num_images=3))
    assert response.status_code == 200
    body = response.json()
    images = body.pop("images")
    assert len(set(images)) == 3
    assert body == {
        "success": True,
        "image_url": images[0],
        "prompt_used": "a fox",
        "size_used": "landscape_4_3",
        "cost": "0.021",
        "credits_charged": 3,
    }
    assert await app.balance() == ("4.979", "0.00")


async def test_bearer_header_and_urlencoded_form_equal_a_json_body(app: AppFixture) -> None:
    by_header = await app.client.post("/api/ra1", json={"prompt": "x"}, headers=app.bearer)
    by_form = await app.client.post("/api/anime", data={"api_key": app.key, "prompt": "x", "num_images": "2"})
    parts = {"api_key": (None, app.key), "prompt": (None, "x"), "seed": (None, "7")}
    by_parts = await app.client.post("/api/ra1", files=parts)
    curl = {"Content-Type": "application/x-www-form-urlencoded"}
    by_curl = await app.client.post(
        "/api/ra1", content=f'{{"api_key":"{app.key}","prompt":"x"}}', headers=curl
    )
    assert [by_header.status_code, by_form.status_code, by_parts.status_code, by_curl.status_code] == [
        200
    ] * 4
    assert by_form.json()["credits_charged"] == 2


async def test_list_is_a_repeated_field_of_a_form(app: AppFixture) -> None:
    image = (await app.client.post("/api/ra1", json={"prompt": "x"}, headers=app.bearer)).json()["image_url"]
    form = {"api_key": app.key, "image_url": image, "target_sizes": ["64x32", "48x48"]}
    by_fields = await app.client.post("/api/smart-resize", data=form)
    sizes = [("target_sizes", (None, size)) for size in ("64x32", "48x48")]
    parts = [("api_key", (None, app.key)), ("image_url", (None, image)), *sizes]
    by_parts = await app.client.post("/api/smart-resize", files=parts)
    for response in (by_fields, by_parts):
        assert response.status_code == 200, response.text
        assert [(row["width"], row["height"]) for row in response.json()["result"]] == [(64, 32), (48, 48)]
        assert response.json()["cost"] == "0.42"
    form["image_url"] = ["nonsense", image]
    assert (await app.client.post("/api/smart-resize", data=form)).status_code == 200


SIZES = "it must be one of 1024x1024, 1152x768, 768x1152, 1152x864, 864x1152, 1360x768, 768x1360"
SEEDS = f"from 0 to {2**31 - 1}"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "Prompt is required"),
    ({"prompt": ""}, "Prompt is required"),
    ({"prompt": "  \n"}, "Prompt is required"),
    ({"prompt": 5}, "Invalid prompt: it must be a string"),
    ({"prompt": ["x"]}, "Invalid prompt: it must be a string"),
    ({"prompt": "x" * 1001}, "Prompt must be at most 1000 characters"),
    ({"size": "1x1"}, f"Invalid size: {SIZES} (got 1x1)"),
    ({"size": "512x512"}, f"Invalid size: {SIZES} (got 512x512)"),
    ({"size": "1024X1024"}, f"Invalid size: {SIZES} (got 1024X1024)"),
    ({"size": 1024}, f"Invalid size: {SIZES} (got 1024)"),
    ({"size": "x" * 41}, f"Invalid size: {SIZES}"),
    ({"size": "\n"}, f"Invalid size: {SIZES}"),
    ({"size": {"a": 1}}, f"Invalid size: {SIZES}"),
    ({"seed": -1}, f"Invalid seed: it must be {SEEDS} (got -1)"),
    ({"seed": 2**31}, f"Invalid seed: it must be {SEEDS} (got {2**31})"),
    ({"seed": 10**400}, f"Invalid seed: it must be {SEEDS}"),
    ({"seed": "7"}, f"Invalid seed: it must be a whole number {SEEDS}"),
    ({"seed": 1.5}, f"Invalid seed: it must be a whole number {SEEDS}"),
    ({"seed": True}, f"Invalid seed: it must be a whole number {SEEDS}"),
    ({"enable_safety_checker": "yes"}, "Invalid enable_safety_checker: it must be true or false"),
    ({"response_mode": "webhook"}, "Invalid response_mode: it must be polling or inline"),
    ({"response_mode": 1}, "Invalid response_mode: it must be polling or inline"),
]


@pytest.mark.parametrize(("change", "text"), REFUSED)
async def test_error_names_the_invalid_parameter(app: AppFixture, change: dict[str, Any], text: str) -> None:
    response = await app.client.post("/api/ra1", json=body_with(app, **change))
    assert (response.status_code, response.json()) == (400, {"error": text, "status": 400})
    assert await app.balance() == ("5.00", "0.00")


@pytest.mark.parametrize("count", [0, 9, "2", 1.5, [1]])
async def test_anime_num_images_is_from_1_to_8(app: AppFixture, count: Any) -> None:
    answer = await app.client.post("/api/anime", json=body_with(app, num_images=count))
    text = f"from 1 to 8 (got {count})" if count in (0, 9) else "a whole number from 1 to 8"
    response = {"error": f"Invalid num_images: it must be {text}", "status": 400}
    assert (answer.status_code, answer.json()) == (400, response)


async def test_longest_prompt_is_accepted_and_unknown_field_ignored(app: AppFixture) -> None:
    longest = await app.client.post("/api/ra1", json=body_with(app, prompt="ü" * 1000, surplus={"a": [1]}))
    longer = await app.client.post("/api/anime", json=body_with(app, prompt="x" * 4000))
    too_long = await app.client.post("/api/anime", json=body_with(app, prompt="x" * 4001))
    assert [longest.status_code, longer.status_code, too_long.status_code] == [200, 200, 400]
    assert too_long.json()["error"] == "Prompt must be at most 4000 characters"
    assert longest.json()["prompt_used"] == "ü" * 1000


@pytest.mark.parametrize("key", [None, "", "sf_unknown", 5, ["x"], {"a": 1}, "x" * 10_000])
async def test_key_is_checked_before_the_parameters(app: AppFixture, key: Any) -> None:
    for path in (*RA1, *ANIME):
        response = await app.client.post(path, json={"api_key": key, "size": "nonsense"})
        assert (response.status_code, response.json()) == (401, BAD_KEY)


async def test_parameters_are_checked_before_the_balance(app: AppFixture) -> None:
    bad = await app.client.post("/api/ra1", json={"api_key": app.poor, "prompt": "x", "size": "1x1"})
    good = await app.client.post("/api/ra1", json={"api_key": app.poor, "prompt": "x"})
    assert (bad.status_code, bad.json()["error"]) == (400, f"Invalid size: {SIZES} (got 1x1)")
    assert (good.status_code, good.json()) == (402, NO_CREDIT)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        *((raw, "Invalid JSON body") for raw in (b"", b"{", b"[1", b"\xff", b"{} x", b'{"a":NaN}')),
        *((raw, "The body must be a JSON object") for raw in (b"[]", b" [1]", b'"x"', b"5", b"null")),
    ],
)
async def test_body_that_is_not_a_json_object_is_400(app: AppFixture, raw: bytes, message: str) -> None:
    keyless = await app.client.post("/api/ra1", content=raw)
    keyed = await app.client.post("/api/ra1", content=raw, headers=app.bearer)
    wrong = await app.client.post("/api/ra1", content=raw, headers=bearer("sf_wrong"))
    text = {"error": message, "status": 400}
    assert (keyless.status_code, keyless.json()) == (400, text)
    assert (keyed.status_code, keyed.json()) == (400, text)
    assert (wrong.status_code, wrong.json()) == (401, BAD_KEY)


async def test_all_routes_refuse_other_json_in_the_same_words(app: AppFixture) -> None:
    paths = (
        "/api/create-ai",
        "/api/service",
        "/api/containers/run",
        "/api/pages",
        "/api/search",
        "/api/graph/validate",
        "/api/account/checkout",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/batches",
        "/v1/embeddings",
        "/v1/images/generations",
    )
    for raw, message in ((b"[1", "Invalid JSON body"), (b"[]", "The body must be a JSON object")):
        for path in paths:
            response = await app.client.post(path, content=raw, headers=app.bearer)
            error = response.json()["error"]
            text = error if isinstance(error, str) else error["message"]
            assert (path, response.status_code, text) == (path, 400, message)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_only_post_is_allowed(app: AppFixture, method: str) -> None:
    response = await app.client.request(method, "/api/ra1")
    assert (response.status_code, response.json()) == (405, {"error": "Method not allowed", "status": 405})
    assert response.headers["Allow"] == "POST"


async def test_unknown_path_has_the_error_format_of_its_api(app: AppFixture) -> None:
    response = await app.client.post("/api/media/status/", json={})
    assert (response.status_code, response.json()) == (404, {"error": "Not found", "status": 404})
    other = await app.client.post("/api/nonsense")
    assert other.status_code == 404
    assert other.json() == {
        "error": "Not found",
        "code": "not_found",
        "status": 404,
        "request_id": other.headers["X-Request-Id"],
    }


async def test_failed_generation_gets_an_error_and_is_free(app: AppFixture) -> None:
    ra1 = await app.client.post("/api/ra1", json=body_with(app, prompt="FAIL"))
    anime = await app.client.post("/api/anime", json=body_with(app, prompt="FAIL"))
    text = "Image generation failed. Please try again."
    assert (ra1.status_code, ra1.json()) == (502, {"success": False, "error": text})
    assert (anime.status_code, anime.json()) == (502, {"error": text, "status": 502})
    assert await app.balance() == ("5.00", "0.00")
    assert await app.faults() == ()


@pytest.mark.parametrize(
    "point", ["engine.run.ra1=fail", "engine.run.ra1=crash", "store.before=fail", "capture.before=fail"]
)
async def test_no_kind_of_failure_is_charged(tmp_path: Path, point: str) -> None:
    async with running_app(tmp_path, failpoints=point, max_attempts=1) as app:
        response = await app.client.post("/api/ra1", json=body_with(app))
        assert response.status_code == 502
        assert response.json()["success"] is False
        assert await app.balance() == ("5.00", "0.00")
        assert await app.faults() == ()


async def test_run_beyond_its_time_limit_is_free(tmp_path: Path) -> None:
    async with running_app(tmp_path, run_limit_seconds=0.2, max_attempts=1) as app:
        response = await app.client.post("/api/ra1", json=body_with(app, prompt="SLOW"))
        assert response.status_code == 502
        assert await app.balance() == ("5.00", "0.00")


async def test_same_seed_gives_same_bytes_and_other_seed_others(app: AppFixture) -> None:
    async def picture(seed: int | None) -> bytes:
        response = await app.client.post("/api/ra1", json=body_with(app, seed=seed))
        return (await app.client.get(response.json()["image_url"])).content

    first, second, other, random = [await picture(seed) for seed in (7, 7, 8, None)]
    assert first == second
    assert len({first, other, random}) == 3


async def test_job_has_the_same_result_as_a_direct_request(app: AppFixture) -> None:
    inline = (await app.client.post("/api/anime", json=body_with(app, seed=3))).json()
    queued = await app.client.post("/api/anime", json=body_with(app, seed=3, response_mode="polling"))
    assert queued.status_code == 202
    job_id = queued.json()["job_id"]
    assert queued.json() == {
        "job_id": job_id,
        "status": "in_progress",
        "status_url": f"/api/media/status/{job_id}",
    }
    job = await finished_job(app, queued.json()["status_url"])
    result = job.pop("result")
    assert job == {
        "job_id": job_id,
        "status": "completed",
        "progress": 1.0,
        "status_url": f"/api/media/status/{job_id}",
    }
    images = [(await app.client.get(body["image_url"])).content for body in (inline, result)]
    assert images[0] == images[1]
    same = ("success", "prompt_used", "size_used", "cost", "credits_charged")
    assert [result[name] for name in same] == [inline[name] for name in same]
    assert set(result) == set(inline)
    by_post = await app.client.post(f"/api/media/status/{job_id}")
    assert by_post.json()["result"] == result
    # A client with the alternative base URL appends `status_url` to it.
    alternative = await app.client.get(f"/alt{queued.json()['status_url']}")
    assert alternative.json() == by_post.json()
    unknown = await app.client.get("/alt/api/media/status/job_unknown")
    assert (unknown.status_code, unknown.json()["status"], len(unknown.json())) == (404, 404, 2)
    assert await app.balance() == ("4.986", "0.00")


async def test_failed_job_has_an_error_and_canceled_job_is_free(app: AppFixture) -> None:
    failing = await app.client.post("/api/ra1", json=body_with(app, prompt="FAIL", response_mode="polling"))
    job = await finished_job(app, failing.json()["status_url"])
    assert (job["status"], job["error"]) == ("failed", "Image generation failed. Please try again.")
    slow = await app.client.post("/api/ra1", json=body_with(app, prompt="SLOW", response_mode="polling"))
    assert await app.balance() == ("5.00", "0.04")
    status_url = slow.json()["status_url"]
    await wait_until(lambda: _running(app))
    canceled = await app.client.delete(status_url)
    job = canceled.json()
    assert (canceled.status_code, job["status"]) == (200, "canceled")
    assert (await app.client.get(status_url)).json() == job
    assert set(job) == {"job_id", "status", "progress", "status_url"}
    assert await app.balance() == ("5.00", "0.00")


async def _running(app: AppFixture) -> list[Any]:
    page = await app.client.get("/api/containers/predictions?status=running", headers=app.bearer)
    return page.json()["predictions"]


async def test_an_unknown_job_is_not_found(app: AppFixture) -> None:
    for job_id in ("job_unknown", "x" * 5000, "pred_1"):
        for method in ("GET", "POST", "DELETE"):
            response = await app.client.request(method, f"/api/media/status/{job_id}")
            assert (response.status_code, response.json()["status"]) == (404, 404)
    wrong = await app.client.put("/api/media/status/job_x")
    assert (wrong.status_code, wrong.json()) == (405, {"error": "Method not allowed", "status": 405})


async def test_response_after_the_inline_time_is_a_job(tmp_path: Path) -> None:
    async with running_app(tmp_path, inline_seconds=0.05) as app:
        response = await app.client.post("/api/ra1", json=body_with(app, prompt="LATE"))
        assert response.status_code == 202
        job = await finished_job(app, response.json()["status_url"])
        assert job["status"] == "completed"


async def test_draining_server_returns_jobs_and_refuses_new_requests(app: AppFixture) -> None:
    pending_task = asyncio.create_task(app.client.post("/api/ra1", json=body_with(app, prompt="LATE")))
    await app.until("5.00", "0.04")
    app.predictions.drain()
    assert (await pending_task).status_code == 202
    response = await app.client.post("/api/ra1", json=body_with(app))
    assert (response.status_code, response.json()["status"]) == (503, 503)
    assert (await app.client.get("/readyz")).status_code == 503
    assert (await app.client.get("/livez")).status_code == 200


async def test_preview_engine_does_not_serve_publicly_by_default(tmp_path: Path) -> None:
    public = {"public_url": "https://media.example", "host": "0.0.0.0"}
    async with running_app(tmp_path / "a", small_models("preview"), **public) as app:
        wrong = await app.client.post("/api/ra1", json=body_with(app, size="1x1"))
        response = await app.client.post("/api/ra1", json=body_with(app))
        assert (wrong.status_code, response.status_code) == (400, 503)
        assert "SIXFOLD_PREVIEWS=allow" in response.json()["error"]
        assert await app.balance() == ("5.00", "0.00")
    async with running_app(tmp_path / "b", small_models("preview"), previews="allow", **public) as app:
        response = await app.client.post("/api/ra1", json=body_with(app))
        assert response.json()["image_url"].startswith("https://media.example/media/")


async def test_limited_keys_use_only_their_services(app: AppFixture) -> None:
    reader = await app.limited_key(KeyLimits(read_only=True))
    painter = await app.limited_key(KeyLimits(services=("anime",)))
    for key, path, status in (
        (reader, "/api/ra1", 403),
        (painter, "/api/ra1", 403),
        (painter, "/api/anime", 200),
    ):
        response = await app.client.post(path, json={"api_key": key, "prompt": "x"})
        assert response.status_code == status
