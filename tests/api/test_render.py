"""The timeline API: projects, jobs, videos, rejected requests and charges."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw

from sixfold.app import catalog as app_catalog
from sixfold.engines.video.timeline import fonts
from tests.api.app_fixture import AppFixture, running_app
from tests.api.media_samples import DecodedVideo, finished_job, near, upload, wav, write_video
from tests.corpora import tricks
from tests.harness import image_files
from tests.unit.net import servers

RENDER = "/api/video-editor/render"
FAILED = "Video generation service failed"
TITLE = {"type": "text", "clips": [{"text": "Hello", "duration": 0.5, "style": {"font_size": 20}}]}


@pytest.fixture
async def engine_app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with every real engine."""
    async with running_app(tmp_path, app_catalog.models_document()) as result:
        yield result


def project(*tracks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"width": 96, "height": 64, "fps": 10, "tracks": list(tracks or (TITLE,)), **more}


def image_uri(color: str = "#1040c0", size: tuple[int, int] = (40, 30)) -> str:
    return image_files.data_uri(image_files.encode(Image.new("RGB", size, color)))


async def post_project(app: AppFixture, wanted: Any, **more: Any) -> Any:
    """Submit a project; return the response."""
    body = {"api_key": app.key, "project": wanted, **more}
    return await app.client.post(RENDER, json=body)


async def render(app: AppFixture, wanted: Any, **more: Any) -> tuple[dict[str, Any], DecodedVideo]:
    queued = await post_project(app, wanted, **more)
    assert queued.status_code == 202, queued.text
    job = await finished_job(app, queued.json()["status_url"])
    assert job["status"] == "completed", job
    response = await app.client.get(job["result"]["video"]["url"])
    assert response.headers["Content-Type"] == job["result"]["video"]["content_type"]
    return job["result"], DecodedVideo(response.content)


async def test_render_is_always_a_job_and_returns_a_video(engine_app: AppFixture) -> None:
    for more in ({}, {"response_mode": "inline"}, {"response_mode": "polling"}):
        queued = await post_project(engine_app, project(), **more)
        job = queued.json()
        assert (queued.status_code, set(job)) == (202, {"job_id", "status", "status_url"})
        assert job["status"] == "in_progress"
        assert job["status_url"] == f"/api/media/status/{job['job_id']}"
        result = (await finished_job(engine_app, job["status_url"]))["result"]
        url = result["video"].pop("url")
        assert result == {
            "video": {"width": 96, "height": 64, "duration": 0.5, "fps": 10, "content_type": "video/mp4"},
            "cost": "0.005",
            "credits_charged": 1,
        }
    video = DecodedVideo((await engine_app.client.get(url)).content)
    assert (video.size, video.rate, len(video.frames)) == ((96, 64), 10.0, 5)
    assert (video.codecs, video.pixels) == ({"video": "h264"}, "yuv420p")
    assert await engine_app.faults() == ()


async def test_render_of_7_3_seconds_costs_the_contract_price(engine_app: AppFixture) -> None:
    still = {"type": "image", "clips": [{"url": image_uri(), "duration": 7.3}]}
    result, video = await render(engine_app, project(still, width=16, height=16, fps=24))
    assert (result["cost"], result["credits_charged"]) == ("0.073", 8)
    assert len(video.frames) == 176
    assert await engine_app.balance() == ("4.927", "0.00")


FORMATS = {
    "mp4": ("video/mp4", {"video": "h264", "audio": "aac"}),
    "webm": ("video/webm", {"video": "vp9", "audio": "opus"}),
    "gif": ("image/gif", {"video": "gif"}),
}


@pytest.mark.parametrize("format_", FORMATS)
async def test_render_supports_three_video_formats(
    engine_app: AppFixture, tmp_path: Path, format_: str
) -> None:
    url = await upload(engine_app, write_video(tmp_path / "a.mp4", tone=440))
    result, video = await render(
        engine_app, project({"type": "video", "clips": [{"url": url, "fit": "fill"}]}), format=format_
    )
    content_type, codecs = FORMATS[format_]
    assert result["video"]["content_type"] == content_type
    assert (result["video"]["duration"], result["video"]["fps"]) == (1.0, 10)
    assert (video.codecs, video.size, len(video.frames)) == (codecs, (96, 64), 10)
    assert near(video.color(0.5, 48, 32), (200, 40, 40), 30)
    if format_ != "gif":
        assert abs(video.pitch(0.2, 0.8) - 440) < 5


async def test_tracks_are_composited_at_the_positions_of_their_clips(
    engine_app: AppFixture, tmp_path: Path
) -> None:
    red = await upload(engine_app, write_video(tmp_path / "a.mp4"))
    music = await upload(engine_app, wav(1.0, 660))
    tracks = (
        {"type": "video", "clips": [{"url": red, "start": 0.3, "fit": "cover"}]},
        {"type": "image", "clips": [{"url": image_uri(), "x": 50, "y": 10, "width": 40, "height": 30}]},
        {"type": "audio", "clips": [{"url": music, "start": 0.5, "duration": 0.5, "volume": 0.5}]},
    )
    result, video = await render(engine_app, project(*tracks, background="#00ff00"))
    # An image is shown for five seconds by default.
    assert result["video"]["duration"] == 5.0
    assert near(video.color(0.1, 10, 10), (0, 255, 0))
    assert near(video.color(0.5, 10, 10), (200, 40, 40))
    assert near(video.color(0.1, 70, 25), (16, 64, 192), 20)
    assert near(video.color(0.5, 10, 60), (200, 40, 40))
    assert near(video.color(3.0, 70, 25), (16, 64, 192), 20)
    assert video.loudness(0.0, 0.45) < 0.001
    assert video.loudness(0.55, 0.95) == pytest.approx(0.5 * 0.5 / 2**0.5, rel=0.1)
    assert abs(video.pitch(0.55, 0.95) - 660) < 5


WRONG: list[tuple[Any, str]] = [
    (None, "Invalid project: it is required"),
    ("nonsense", "Invalid project: it must be an object"),
    ('{"tracks": []}', "Invalid project: it must be an object"),
    ([], "Invalid project: it must be an object"),
    ({}, "Invalid project: tracks: must be a list"),
    ({"tracks": []}, "Invalid project: project must have 1 to 256 clips in total"),
    ({"tracks": {}}, "Invalid project: tracks: must be a list"),
    ({"tracks": [TITLE] * 33}, "Invalid project: tracks: must be at most 32"),
    (project(width=15), "Invalid project: project width must be from 16 to 3840 (got 15)"),
    (project(height=3841), "Invalid project: project height must be from 16 to 3840 (got 3841)"),
    (project(fps=0), "Invalid project: project fps must be from 1 to 60 (got 0)"),
    (project(background="nope"), "Invalid project: project background must be a color such as #ffcc00"),
    (project({"type": "film"}), "Invalid project: tracks[0]: type must be one of video, image, text, audio"),
    (project(TITLE, {"type": "text"}), "Invalid project: tracks[1].clips: must be a list"),
    (project({"type": "image", "clips": [{}]}), "Invalid project: tracks[0].clips[0]: url is required"),
]
CLIPS: list[tuple[dict[str, Any], str]] = [
    ({"text": ""}, "text is required"),
    ({"start": -1}, "start must be from 0 to 600 (got -1)"),
    ({"duration": 0}, "duration must be from 0.01 to 600 (got 0)"),
    ({"duration": "long"}, "duration must be a number from 0.01 to 600"),
    ({"fit": "crop"}, "fit must be one of contain, cover, fill (got crop)"),
    ({"opacity": 1.1}, "opacity must be from 0 to 1 (got 1.1)"),
    ({"speed": 0}, "speed must be from 0.1 to 16 (got 0)"),
    ({"volume": True}, "volume must be a number from 0 to 8"),
    ({"rotation": "90"}, "rotation must be a number from -36000 to 36000"),
    ({"style": {"color": "#12"}}, "tracks[0].clips[0].style: color must be a color such as #ffcc00"),
    (
        {"style": {"align": "top"}},
        "tracks[0].clips[0].style: align must be one of left, center, right (got top)",
    ),
    ({"transition": {"type": "spin"}}, "transition: type must be one of crossfade, wipe, slide (got spin)"),
    ({"transition": {}}, "transition: type is required"),
    ({"start": 599, "duration": 2}, "project must be at most 600 seconds (got 601)"),
]


async def test_invalid_project_is_rejected_with_a_reason_and_free(engine_app: AppFixture) -> None:
    for expected, text in WRONG:
        response = await post_project(engine_app, expected)
        assert (response.status_code, response.json()) == (400, {"error": text, "status": 400}), expected
    for change, text in CLIPS:
        clip = {"text": "x", **change}
        response = await post_project(engine_app, project({"type": "text", "clips": [clip]}))
        assert response.status_code == 400, change
        assert response.json()["error"].endswith(text), response.text
    bad_format = await post_project(engine_app, project(), format="avi")
    assert bad_format.json() == {
        "error": "Invalid format: it must be one of mp4, webm, gif (got avi)",
        "status": 400,
    }
    assert await engine_app.balance() == ("5.00", "0.00")


async def test_characters_without_a_font_are_named_and_free(engine_app: AppFixture) -> None:
    letters = "".join(chr(0xE0F0 + at) for at in range(7))
    clips = [{"text": text, "duration": 0.2} for text in ("fine", f"{letters}x", "too", letters)]
    response = await post_project(engine_app, project({"type": "text", "clips": clips}))
    codes = [f"U+E0F{at}" for at in range(7)]
    lacking = "text contains characters that are not in any font on this server"
    assert response.status_code == 400
    assert response.json()["error"] == (
        f"Invalid project: tracks[0].clips[1]: {lacking}: {', '.join(codes)}; "
        f"tracks[0].clips[3]: {lacking}: {', '.join(codes[:3])}, and 4 more; remove them, or install an "
        "outline font "
        "that contains them on the server, such as Debian's fonts-noto-cjk for Chinese, Japanese "
        "and Korean, and restart it"
    )
    assert await engine_app.balance() == ("5.00", "0.00")


async def test_chinese_is_drawn_with_an_installed_font(engine_app: AppFixture) -> None:
    font = next((font for font in fonts.installed() if font.count("世界") == 2), None)
    if font is None:
        pytest.skip("no installed font has Chinese characters: install fonts-wqy-microhei or fonts-noto-cjk")
    style = {"font_size": 40, "background": "transparent"}
    track = {"type": "text", "clips": [{"text": "世界", "duration": 0.2, "style": style}]}
    _, video = await render(engine_app, project(track, width=160, height=96))
    frame = video.frames[0].max(2)
    for letter in "世界":
        sign = Image.new("L", (80, 80), 0)
        ImageDraw.Draw(sign).text((10, 10), letter, font=font.at(40), fill=255)
        glyph = np.asarray(sign.crop(sign.getbbox()))
        assert cv2.matchTemplate(frame, glyph, cv2.TM_CCOEFF_NORMED).max() > 0.9


async def test_every_invalid_clip_is_in_one_error(engine_app: AppFixture) -> None:
    urls = [
        "http://127.0.0.1:9/a.mp4",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "data:text/html,<script>",
        f"{engine_app.client.base_url}/media/nothing.mp4",
        image_uri(),
    ]
    clips = [{"url": url, "duration": 0.2} for url in urls]
    response = await post_project(
        engine_app, project({"type": "video", "clips": clips}, {"type": "audio", "clips": clips})
    )
    text = response.json()["error"]
    assert response.status_code == 400
    prefixes = [f"tracks[{track}].clips[{clip}]: " for track in (0, 1) for clip in range(len(urls))]
    assert [prefix for prefix in prefixes if prefix not in text] == []
    assert await engine_app.balance() == ("5.00", "0.00")


async def test_key_is_checked_first_and_balance_last(engine_app: AppFixture) -> None:
    keyless = await engine_app.client.post(RENDER, json={"project": 5})
    wrong = await engine_app.client.post(RENDER, json={"api_key": engine_app.poor, "project": {}})
    poor = await engine_app.client.post(RENDER, json={"api_key": engine_app.poor, "project": project()})
    assert (keyless.status_code, keyless.json()["error"]) == (401, "Invalid API key")
    assert wrong.status_code == 400
    assert (poor.status_code, poor.json()) == (402, {"error": "Insufficient credits", "status": 402})


async def test_url_of_several_clips_is_fetched_once(tmp_path: Path) -> None:
    data = write_video(tmp_path / "a.mp4", tone=440)
    async with (
        servers.serving(routes={"/a.mp4": servers.reply(data)}) as far,
        running_app(tmp_path, app_catalog.models_document(), fetch_allow="127.0.0.0/8") as app,
    ):
        clips = [{"url": far.url("/a.mp4"), "start": at, "duration": 0.2} for at in (0, 0.2, 0.4)]
        result, video = await render(
            app, project({"type": "video", "clips": clips}, {"type": "audio", "clips": clips})
        )
        assert len(far.requests) == 1
        assert (result["video"]["duration"], len(video.frames)) == (0.6, 6)


async def test_hostile_video_files_open_no_other_file_or_host(tmp_path: Path) -> None:
    async with (
        servers.serving() as canary,
        running_app(tmp_path, app_catalog.models_document(), fetch_allow="127.0.0.0/8") as app,
    ):
        for name, data in tricks.files(canary.url("").rstrip("/")).items():
            url = await upload(app, data)
            for kind in ("video", "audio", "image"):
                answer = await post_project(
                    app, project({"type": kind, "clips": [{"url": url, "duration": 0.2}]})
                )
                if answer.status_code == 202:
                    job = await finished_job(app, answer.json()["status_url"])
                    assert job["status"] == "failed", (name, kind)
                    assert job["error"].startswith("tracks[0].clips[0]: "), job
                else:
                    assert answer.status_code == 400, (name, kind, answer.text)
            cut = {"api_key": app.key, "video_url": url}
            response = await app.client.post("/api/remove-background-video", json=cut)
            assert response.status_code == 400, (name, response.text)
        assert canary.connections == 0
        assert await app.balance() == ("5.00", "0.00")


async def test_clip_without_duration_is_priced_by_its_file(engine_app: AppFixture, tmp_path: Path) -> None:
    url = await upload(engine_app, write_video(tmp_path / "a.mp4"))
    clip = {"url": url, "trim_start": 0.4, "speed": 0.5}
    result, video = await render(engine_app, project({"type": "video", "clips": [clip]}))
    assert (result["video"]["duration"], result["cost"], len(video.frames)) == (1.2, "0.012", 12)
    beyond = await post_project(
        engine_app, project({"type": "video", "clips": [{"url": url, "trim_start": 1.5}]})
    )
    assert beyond.json()["error"] == (
        "Invalid project: tracks[0].clips[0]: trim_start must be less than the length of the file, 1 seconds"
    )


async def test_clip_starting_after_its_file_is_refused_unpriced(
    engine_app: AppFixture, tmp_path: Path
) -> None:
    picture_, sound = (
        await upload(engine_app, write_video(tmp_path / "a.mp4")),
        await upload(engine_app, wav(1.0, 440)),
    )
    late = {"trim_start": 1.0, "duration": 500}
    response = await post_project(
        engine_app,
        project(
            {"type": "video", "clips": [{"url": picture_, "duration": 1}, {"url": picture_, **late}]},
            {"type": "audio", "clips": [{"url": sound, **late}]},
            {"type": "image", "clips": [{"url": image_uri(), "trim_start": 9, "duration": 0.1}]},
        ),
    )
    assert (response.status_code, response.json()["error"]) == (
        400,
        "Invalid project: tracks[0].clips[1]: trim_start must be less than the length of the file, 1 "
        "seconds; "
        "tracks[1].clips[0]: trim_start must be less than the length of the file, 1 seconds",
    )
    assert await engine_app.balance() == ("5.00", "0.00")


async def test_failed_render_has_an_error_and_is_free(tmp_path: Path) -> None:
    document = app_catalog.models_document()
    async with running_app(tmp_path, document, failpoints="engine.run.render=fail", max_attempts=1) as app:
        queued = await post_project(app, project())
        job = await finished_job(app, queued.json()["status_url"])
        assert (job["status"], job["error"]) == ("failed", FAILED)
        assert await app.balance() == ("5.00", "0.00")


async def test_a_render_can_be_canceled(engine_app: AppFixture) -> None:
    long = {"type": "text", "clips": [{"text": "x", "duration": 600, "fade_in": 600}]}
    queued = await post_project(engine_app, project(long, width=640, height=360, fps=30))
    assert (await engine_app.balance())[1] == "0.00" or queued.status_code == 402
    # The render costs six dollars, but the account has five.
    assert queued.status_code == 402
    shorter = {"type": "text", "clips": [{"text": "x", "duration": 400, "fade_in": 400}]}
    queued = await post_project(engine_app, project(shorter, width=640, height=360, fps=30))
    assert await engine_app.balance() == ("5.00", "4.00")
    url = queued.json()["status_url"]
    await engine_app.client.delete(url)
    assert (await finished_job(engine_app, url))["status"] == "canceled"
    assert await engine_app.balance() == ("5.00", "0.00")


@pytest.mark.parametrize("format_", FORMATS)
async def test_identical_projects_return_identical_bytes(engine_app: AppFixture, format_: str) -> None:
    files = []
    for _ in range(2):
        queued = await post_project(engine_app, project(), format=format_)
        job = await finished_job(engine_app, queued.json()["status_url"])
        files.append((await engine_app.client.get(job["result"]["video"]["url"])).content)
    assert files[0] == files[1]
