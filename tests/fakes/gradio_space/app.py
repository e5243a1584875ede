"""Applications of the real Gradio 4, 5 or 6, run by the interpreter of an environment that has it.

It prints a line of JSON with the port of each application, and ends when its input does.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# Gradio is not part of the environment of this project.
gr: Any = importlib.import_module("gradio")

# The event is never set, so that a wait takes its full time.
WORK = threading.Event()
TOLD_SECONDS = 0.3  # Gradio reports progress ten times a second
COLORS = [("Plain one", "plain"), ("Bold", "bold")]


def paint(
    words: str,
    count: int,
    width: int,
    share: float,
    style: str,
    mood: str,
    flip: bool,
    picture: str | None,
    seen: int | None,
    progress: Any = gr.Progress(),  # noqa: B008 - so Gradio finds it
) -> Iterator[tuple[Any, int, int]]:
    """Yield a sketch and then the image; each input sets one pixel."""
    if words == "fail":
        raise gr.Error("There is no such paint")
    if words == "break":
        raise RuntimeError("a secret of the house")
    progress(0.25, desc="mixing")
    WORK.wait(TOLD_SECONDS)
    yield Image.new("RGB", (8, 8)), 0, seen or 0
    progress(0.75, desc="painting")
    WORK.wait(TOLD_SECONDS)
    mean = 0 if picture is None else round(float(np.asarray(Image.open(picture).convert("L")).mean()))
    facts = [len(words), count, round(share * 100), style == "bold", mood == "calm", flip, mean]
    pixels = np.zeros((64, width, 3), np.uint8)
    pixels[0, : len(facts), 0] = facts
    yield Image.fromarray(pixels), (seen or 0) + 1, (seen or 0) + 1


def turn(sound: str, backwards: bool) -> str:
    """A sound, from its end to its beginning."""
    with wave.open(sound) as file:
        about, samples = file.getparams(), np.frombuffer(file.readframes(file.getnframes()), np.int16)
    result = Path(sound).with_name("turned.wav")
    with wave.open(str(result), "wb") as file:
        file.setparams(about)
        file.writeframes((samples[::-1] if backwards else samples).tobytes())
    return str(result)


def read(paper: Any, pictures: list[Any] | None) -> tuple[str, list[Any]]:
    """Return a file in capitals, and images rotated by 90 degrees."""
    text = Path(getattr(paper, "name", paper)).read_text("utf-8")
    result = Path(getattr(paper, "name", paper)).with_name("loud.txt")
    result.write_text(text.upper(), "utf-8")
    return str(result), [Image.open(image).rotate(90, expand=True) for image, _ in pictures or []]


def show(pictures: list[Any] | None, times: float) -> list[Any]:
    """Return a gallery with each input repeated."""
    return [Image.open(image) for image, _ in pictures or [] for _ in range(int(times))]


def wait(words: str, progress: Any = gr.Progress()) -> Iterator[str]:  # noqa: B008 - so Gradio finds it
    """Its words; `hold` keeps them for a minute."""
    progress(0.5, desc=f"begun: {words}")
    for _ in range(600 if words == "hold" else 0):
        WORK.wait(0.1)
        yield "not yet"
    yield words


def painting() -> Any:
    with gr.Blocks(title="Everything") as app:
        inputs = [
            gr.Textbox(label="Words"),
            gr.Number(label="Count", value=3, precision=0, minimum=0, maximum=9),
            gr.Slider(32, 256, value=64, step=16, label="Width"),
            gr.Slider(0, 1, value=0.5, label="Share"),
            gr.Dropdown(COLORS, value="plain", label="Style"),
            gr.Radio(["calm", "wild"], value="wild", label="Mood"),
            gr.Checkbox(label="Flip"),
            gr.Image(type="filepath", label="Picture"),
        ]
        state = gr.State(0)
        result = gr.Image(label="Result", format="png")
        count = gr.Number(label="Seen", precision=0)
        button = gr.Button()
        button.click(paint, [*inputs, state], [result, count, state], api_name="paint")
        gr.Button().click(lambda words: words, inputs[:1], gr.Textbox(), api_name="echo")
    return app.queue()


def one(function: Any, inputs: list[Any], outputs: list[Any], **more: Any) -> Any:
    with gr.Blocks() as app:
        shown_in = [part.render() for part in inputs]
        shown_out = [part.render() for part in outputs]
        gr.Button().click(function, shown_in, shown_out, api_name=function.__name__, **more)
    return app.queue()


def applications() -> dict[str, Any]:
    def unseen(kind: Any, **facts: Any) -> Any:
        return kind(render=False, **facts)

    return {
        "painting": painting(),
        "turn": one(
            turn, [unseen(gr.Audio, type="filepath"), unseen(gr.Checkbox, value=True)], [unseen(gr.Audio)]
        ),
        "read": one(read, [unseen(gr.File), unseen(gr.Gallery)], [unseen(gr.File), unseen(gr.Gallery)]),
        "show": one(show, [unseen(gr.Gallery), unseen(gr.Number, value=1)], [unseen(gr.Gallery)]),
        "wait": one(wait, [unseen(gr.Textbox)], [unseen(gr.Textbox)], concurrency_limit=1),
    }


def main() -> None:
    ports: dict[str, int] = {}
    for name, app in applications().items():
        app.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
        ports[name] = app.server_port
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
