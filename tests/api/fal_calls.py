"""Calls of fal's own client, unmodified except for its hosts; prints the results as JSON lines.

It is a separate program, since the client reads its hosts from the environment on import.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fal_client
from fal_client import client as hosts
from fal_client.client import FalClientHTTPError

# The upload hosts have no setting.
hosts.REST_URL = hosts.CDN_URL = hosts.RUN_URL_FORMAT.rstrip("/")
APP = "fal-ai/flux/schnell"


def tell(**answers: Any) -> None:
    print(json.dumps(answers))  # noqa: T201 - the test reads it


def main(image: str) -> None:
    statuses: list[Any] = []
    request = {"prompt": "a fox", "seed": 7, "image_size": "square", "num_images": 1, "guidance_scale": 3.5}
    result = fal_client.subscribe(APP, request, with_logs=True, on_queue_update=statuses.append)
    tell(
        subscribed=result,
        last=type(statuses[-1]).__name__,
        metrics=statuses[-1].metrics,
        logs=statuses[-1].logs,
    )
    handle = fal_client.submit("fal-ai/fast-sdxl", {"prompt": "SLOW"})
    tell(queued=type(fal_client.status(APP, handle.request_id)).__name__)
    fal_client.cancel("fal-ai/fast-sdxl", handle.request_id)
    last: Any = None
    *_, last = handle.iter_events(interval=0.01)
    tell(canceled=last.error, kind=last.error_type)
    for repository in ("fal_v3", "fal"):
        url = fal_client.upload_file(Path(image), repository=repository)
        tell(ran=fal_client.run("fal-ai/bria/background/remove", {"image_url": url}), uploaded=url)
    for key, app, inputs in (
        (None, APP, {}),
        (None, APP, {"prompt": "a fox", "num_images": 2}),
        (None, "fal-ai/nothing", {"prompt": "a fox"}),
        (None, APP, {"prompt": "FAIL"}),
        ("sf_wrong", APP, {"prompt": "a fox"}),
    ):
        try:
            fal_client.SyncClient(key=key).subscribe(app, inputs)
        except FalClientHTTPError as error:
            tell(status=error.status_code, message=error.message, kind=error.error_type)


if __name__ == "__main__":
    main(sys.argv[1])
