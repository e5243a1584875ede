"""The official clients of OpenAI and Anthropic, unmodified, with all their methods.

SIXFOLD_API_KEY=sf_… python official_clients.py http://127.0.0.1:8600 [MODEL]
"""

from __future__ import annotations

import base64
import io
import json
import os
import sys
from typing import Any

import anthropic
import openai

ORIGIN = sys.argv[1].rstrip("/")
KEY = os.environ["SIXFOLD_API_KEY"]  # noqa: TID251  # a program of its own
MODEL = sys.argv[2] if len(sys.argv) > 2 else "default"
ASKED: Any = [{"role": "user", "content": "say 4 words"}]
CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORMATS: Any = ("mp3", "wav", "opus", "flac", "aac", "pcm")
SHAPES: Any = ("json", "text", "srt", "vtt", "verbose_json")


def report(what: str, result: object) -> None:
    """Print a line of the report."""
    sys.stdout.write(f"{what:<37}{result}\n")


# -- OpenAI ----------------------------------------------------------------------------------------

client = openai.OpenAI(base_url=f"{ORIGIN}/v1", api_key=KEY, max_retries=0)


def talk() -> None:
    """Test chat completions."""
    chat = client.chat.completions
    answer: Any = chat.create(model=MODEL, messages=ASKED)
    report("chat.completions", f"{answer.choices[0].message.content!r}, {answer.usage.total_tokens} tokens")
    options: Any = {"include_usage": True}
    chunks = list(chat.create(model=MODEL, messages=ASKED, stream=True, stream_options=options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    used: Any = chunks[-1].usage
    report("… as a stream", f"{text!r}, {used.total_tokens} tokens")
    weather: Any = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
    messages: Any = [{"role": "user", "content": "How is it in Oslo?"}]
    message: Any = chat.create(model=MODEL, messages=messages, tools=[weather]).choices[0].message
    call = message.tool_calls[0]
    report("… with a tool", f"{call.function.name}({call.function.arguments})")
    messages += [message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    answer = chat.create(model=MODEL, messages=messages, tools=[weather])
    report("… and its result", repr(answer.choices[0].message.content))
    answer = chat.create(model=MODEL, messages=ASKED, response_format={"type": "json_object"})
    report("… in JSON mode", json.loads(answer.choices[0].message.content or ""))
    shape: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY, "strict": True}}
    answer = chat.create(model=MODEL, messages=ASKED, response_format=shape)
    report("… by a schema", json.loads(answer.choices[0].message.content or ""))


def see(picture: str) -> None:
    """Test an image in a conversation."""
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": picture}}]
    messages: Any = [{"role": "user", "content": parts}]
    answer = client.chat.completions.create(model=MODEL, messages=messages)
    report("… with a picture", repr(answer.choices[0].message.content))


def respond() -> None:
    """Test responses."""
    answer = client.responses.create(model=MODEL, input="say 4 words", instructions="Be short.")
    report("responses", f"{answer.output_text!r}, {answer.status}")
    with client.responses.stream(model=MODEL, input="say 4 words") as events:
        kinds = [event.type for event in events]
    report("… as events", f"{len(kinds)}: {kinds[0]} to {kinds[-1]}")
    tool: Any = {"type": "function", "name": "weather", "parameters": CITY, "strict": False}
    messages: Any = [{"role": "user", "content": "How is it in Oslo?"}]
    answer = client.responses.create(model=MODEL, input=messages, tools=[tool])
    call: Any = next(item for item in answer.output if item.type == "function_call")
    outcome = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
    messages += [*answer.output, outcome]
    answer = client.responses.create(model=MODEL, input=messages, tools=[tool])
    report("… with a tool and its result", f"{call.name}({call.arguments}), {answer.output_text!r}")


def draw() -> str:
    """Test images; return one as a data URI."""
    size: Any = "128x128"
    images: Any = client.images.generate(model="gpt-image-1", prompt="a lighthouse at dawn", size=size)
    picture = base64.b64decode(images.data[0].b64_json)
    report("images.generate", f"{len(images.data)} picture, {picture[1:4].decode()}, as base64")
    images = client.images.generate(model="ra2", prompt="a lighthouse at dawn", size=size, n=2)
    report("… by their addresses", f"{len(images.data)} pictures, {images.data[0].url.rpartition('.')[2]}")
    file = ("lighthouse.png", picture, "image/png")
    images = client.images.edit(model="gpt-image-1", image=file, prompt="watercolour")
    report(
        "images.edit",
        f"{len(images.data)} picture, {base64.b64decode(images.data[0].b64_json)[1:4].decode()}",
    )
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def speak() -> None:
    """Test speech in every format, and its transcription."""
    spoken = {}
    for kind in FORMATS:
        answer = client.audio.speech.create(
            model="tts-1", voice="alloy", input="Good morning, dear friends.", response_format=kind
        )
        spoken[kind] = answer.content
        report(f"audio.speech as {kind}", answer.response.headers["content-type"])
    with client.audio.speech.with_streaming_response.create(
        model="tts", voice="ava", input="Hello."
    ) as answer:
        report(
            "… as it comes",
            f"{answer.headers['content-type']}, more than 1 kB: {sum(map(len, answer.iter_bytes())) > 1000}",
        )
    file = io.BytesIO(spoken["wav"])
    file.name = "morning.wav"
    for shape in SHAPES:
        heard: Any = client.audio.transcriptions.create(model="whisper-1", file=file, response_format=shape)
        file.seek(0)
        known = "".join(heard.split()[:1]) if isinstance(heard, str) else sorted(heard.to_dict())
        report(f"audio.transcriptions as {shape}", "some words" if shape == "text" and known else known)


def rest() -> None:
    """Test embeddings, lists of models and errors."""
    vectors = client.embeddings.create(model="embeddings", input=["a fox", "a wolf"])
    report("embeddings", f"{len(vectors.data)} of {len(vectors.data[0].embedding)} numbers")
    names = [model.id for model in client.models.list()]
    report("models", f"{'tts' in names}, {client.models.retrieve('tts').owned_by}")
    stranger = openai.OpenAI(base_url=f"{ORIGIN}/v1", api_key="sf_nobody", max_retries=0)
    for what, request in (
        ("a wrong key", lambda: stranger.models.list()),
        ("a model that is not there", lambda: client.chat.completions.create(model="gpt-0", messages=ASKED)),
        ("a field that is wrong", lambda: client.images.generate(prompt="x", n=99)),
    ):
        try:
            request()
        except openai.APIStatusError as error:
            report(what, f"{type(error).__name__}, {error.code}, {error.param}")


# -- Anthropic -------------------------------------------------------------------------------------

claude = anthropic.Anthropic(base_url=ORIGIN, api_key=KEY, max_retries=0)


def messages(picture: str) -> None:
    """Test messages."""
    create = claude.messages.create
    answer: Any = create(model=MODEL, max_tokens=100, system="Be short.", messages=ASKED)
    report("messages", f"{answer.content[0].text!r}, {answer.stop_reason}")
    with claude.messages.stream(model=MODEL, max_tokens=100, messages=ASKED) as stream:
        report("… as a stream", repr("".join(stream.text_stream)))
    tool: Any = {"name": "weather", "description": "How it is outside", "input_schema": CITY}
    turns: Any = [{"role": "user", "content": "How is it in Oslo?"}]
    answer = create(model=MODEL, max_tokens=100, messages=turns, tools=[tool])
    call = answer.content[0]
    report("… with a tool", f"{call.name}({json.dumps(call.input)})")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "rain"}]}
    turns += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    answer = create(model=MODEL, max_tokens=100, messages=turns, tools=[tool])
    report("… and its result", repr(answer.content[0].text))
    source: Any = {"type": "base64", "media_type": "image/png", "data": picture.partition(",")[2]}
    seen: Any = [{"type": "text", "text": "What is it?"}, {"type": "image", "source": source}]
    answer = create(model=MODEL, max_tokens=100, messages=[{"role": "user", "content": seen}])
    report("… with a picture", repr(answer.content[0].text))
    report("messages.count_tokens", claude.messages.count_tokens(model=MODEL, messages=ASKED).input_tokens)
    try:
        create(model="claude-0", max_tokens=100, messages=ASKED)
    except anthropic.APIStatusError as error:
        report("a model that is not there", f"{type(error).__name__}, {error.type}")


def main() -> None:
    """Run all tests."""
    talk()
    picture = draw()
    see(picture)
    respond()
    speak()
    rest()
    messages(picture)


main()
