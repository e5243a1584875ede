"""The configuration of a realtime session, or of one that only transcribes: defaults, updates, checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, cast

import msgspec
from msgspec import Meta, Struct

from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.gateway.chat import ToolSpec
from sixfold.core.gateway.realtime.audio import PCM_RATE, Encoding

MAX_OUTPUT_TOKENS = 4096
TRANSCRIPTION: Final = "transcription"
_MAX_TOOLS = 128
_MAX_TEXT = 100_000
_MAX_LANGUAGES, _MAX_KEYWORDS = 20, 100
_UNKNOWN = "unknown field `"
_Text = Annotated[str, Meta(max_length=_MAX_TEXT)]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Language = Annotated[str, Meta(max_length=40)]
_OutputTokens = Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)] | Literal["inf"]
# Unsupported fields by path: the only accepted value, and the reason.
_REFUSED: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("prompt",), "prompt must be null", "this server does not store prompts: send instructions"),
    (
        ("audio", "input", "noise_reduction"),
        "noise_reduction must be null",
        "this server does not filter audio",
    ),
)
# The fields that refer to an MCP server other than the operator's.
_REFUSED_OF_SERVERS = ("server_url", "connector_id", "tunnel_id", "authorization", "headers")
# The fields of a session that only transcribes.
_TRANSCRIPTION_FIELDS: Mapping[str, frozenset[str]] = {
    "": frozenset({"type", "audio", "include"}),
    "audio": frozenset({"input"}),
}

# Milliseconds of silence that end a turn. OpenAI's model waits less after a whole sentence.
_SILENCE_MS = {"low": 1_500, "medium": 800, "high": 400, "auto": 800}


class RealtimeAudioFormat(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The encoding of audio: PCM with 24 kHz, or G.711 with 8 kHz."""

    type: Encoding
    rate: Literal[24000] | None = None

    def __post_init__(self) -> None:
        if self.rate is None and self.type == "audio/pcm":
            self.rate = PCM_RATE
        elif self.rate is not None and self.type != "audio/pcm":
            raise ValueError("G.711 always has 8,000 samples per second: omit rate")


def _pcm() -> RealtimeAudioFormat:
    return RealtimeAudioFormat("audio/pcm", PCM_RATE)


class VolumeDetection(Struct, forbid_unknown_fields=True, tag_field="type", tag="server_vad"):
    """Detection of the beginning and the end of speech by its volume."""

    threshold: Annotated[float, Meta(ge=0, le=1)] = 0.5
    prefix_padding_ms: Annotated[int, Meta(ge=0, le=5_000)] = 300
    silence_duration_ms: Annotated[int, Meta(ge=20, le=10_000)] = 500
    idle_timeout_ms: Annotated[int, Meta(ge=5_000, le=30_000)] | None = None
    create_response: bool = True
    interrupt_response: bool = True


class SemanticDetection(Struct, forbid_unknown_fields=True, tag_field="type", tag="semantic_vad"):
    """OpenAI's turn detection by meaning; here by volume, with a pause that depends on `eagerness`."""

    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True
    threshold: ClassVar[float] = 0.5
    prefix_padding_ms: ClassVar[int] = 300
    idle_timeout_ms: ClassVar[int | None] = None

    @property
    def silence_duration_ms(self) -> int:
        """The silence that ends a turn."""
        return _SILENCE_MS[self.eagerness]


class InputTranscription(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The transcription of the user's audio: its model and its language. `delay` has no effect."""

    model: _Name | None = None
    language: _Language | None = None
    languages: Annotated[list[_Language], Meta(max_length=_MAX_LANGUAGES)] | None = None
    prompt: _Text | None = None
    keywords: Annotated[list[_Name], Meta(max_length=_MAX_KEYWORDS)] | None = None
    delay: Annotated[str, Meta(max_length=20)] | None = None

    @property
    def spoken_language(self) -> str:
        """The language of the audio; empty if it is unknown or several languages are possible."""
        if self.language is None and self.languages is not None and len(self.languages) == 1:
            return self.languages[0]
        return self.language or ""

    @property
    def hint(self) -> str:
        """The text that guides a model server: the prompt and the keywords."""
        return "\n".join(filter(None, (self.prompt, ", ".join(self.keywords or ()))))


class AudioInput(Struct, forbid_unknown_fields=True):
    """The user's audio."""

    format: RealtimeAudioFormat = msgspec.field(default_factory=_pcm)
    transcription: InputTranscription | None = None
    noise_reduction: None = None
    turn_detection: VolumeDetection | SemanticDetection | None = msgspec.field(
        default_factory=VolumeDetection
    )


class VoiceReference(Struct, forbid_unknown_fields=True):
    """A voice by its id."""

    id: _Name


class AudioOutput(Struct, forbid_unknown_fields=True):
    """The audio of responses."""

    format: RealtimeAudioFormat = msgspec.field(default_factory=_pcm)
    voice: _Name | VoiceReference = "alloy"
    speed: Annotated[float, Meta(ge=0.25, le=1.5)] = 1.0


class SessionAudio(Struct, forbid_unknown_fields=True):
    """The `audio` object of a session: its input and output."""

    input: AudioInput = msgspec.field(default_factory=AudioInput)
    output: AudioOutput = msgspec.field(default_factory=AudioOutput)


class FunctionTool(Struct, forbid_unknown_fields=True, tag_field="type", tag="function"):
    """A function that the model may call."""

    name: _Name
    description: _Text = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolNames(Struct, forbid_unknown_fields=True):
    """The tools of a server that the model may call."""

    tool_names: Annotated[list[_Name], Meta(max_length=_MAX_TOOLS)]


class ServerTools(Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="mcp"):
    """The tools of an MCP server that the operator has connected, by its name in `server_label`.

    This server calls the tools; the fields of `_REFUSED_OF_SERVERS` must be omitted.
    """

    server_label: _Name
    require_approval: Any = None
    allowed_tools: Annotated[list[_Name], Meta(max_length=_MAX_TOOLS)] | ToolNames | None = None
    server_description: _Text | None = None
    server_url: Any = None
    connector_id: Any = None
    tunnel_id: Any = None
    authorization: Any = None
    headers: Any = None

    @property
    def tool_names(self) -> frozenset[str] | None:
        """The names of the tools that may be called, or None for all."""
        allowed = self.allowed_tools
        names = allowed.tool_names if isinstance(allowed, ToolNames) else allowed
        return None if names is None else frozenset(names)


class FunctionChoice(Struct, forbid_unknown_fields=True):
    """The function that the model must call."""

    name: _Name
    type: Literal["function"] = "function"


class ReasoningEffort(Struct, forbid_unknown_fields=True):
    """Amount of reasoning by the model."""

    effort: Annotated[str, Meta(max_length=20)] | None = None


class ResponseDefaults(Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that a session and a single response have in common."""

    output_modalities: Annotated[list[Literal["text", "audio"]], Meta(min_length=1, max_length=1)] = (
        msgspec.field(default_factory=lambda: ["audio"])
    )
    instructions: _Text = ""
    tools: Annotated[list[FunctionTool | ServerTools], Meta(max_length=_MAX_TOOLS)] = []
    tool_choice: Literal["auto", "none", "required"] | FunctionChoice = "auto"
    max_output_tokens: _OutputTokens = "inf"
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningEffort | None = None
    prompt: None = None

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of output tokens, or None if it is unlimited."""
        return None if self.max_output_tokens == "inf" else self.max_output_tokens

    @property
    def choice(self) -> str:
        """The choice of a tool as in `ChatRequest`."""
        choice = self.tool_choice
        return f"={choice.name}" if isinstance(choice, FunctionChoice) else choice

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The functions of the client."""
        functions = [tool for tool in self.tools if isinstance(tool, FunctionTool)]
        return tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in functions)

    @property
    def server_tools(self) -> tuple[ServerTools, ...]:
        """The tools of MCP servers."""
        return tuple(tool for tool in self.tools if isinstance(tool, ServerTools))

    @property
    def speaks(self) -> bool:
        """Whether responses are audio."""
        return "audio" in self.output_modalities


class SessionConfiguration(ResponseDefaults, kw_only=True):
    """Fields of `session.update`. `tracing`, `truncation` and `include` are ignored."""

    model: str
    type: Literal["realtime", "transcription"] = "realtime"
    audio: SessionAudio = msgspec.field(default_factory=SessionAudio)
    tracing: Any = None
    truncation: Any = "disabled"
    include: Any = None

    @property
    def only_transcribes(self) -> bool:
        """Whether the session transcribes audio without responding."""
        return self.type == TRANSCRIPTION

    @property
    def object_type(self) -> str:
        """The field `object` of the session."""
        return "realtime.transcription_session" if self.only_transcribes else "realtime.session"


def initial(model: str) -> SessionConfiguration:
    """Return the configuration of a new session with responses of a chat model."""
    return SessionConfiguration(model=model)


def initial_transcription(model: str) -> SessionConfiguration:
    """Return the configuration of a new session that only transcribes; the model may be empty."""
    audio = SessionAudio(input=AudioInput(transcription=InputTranscription(model or None)))
    return SessionConfiguration(model="", type=TRANSCRIPTION, audio=audio)


def updated(configuration: SessionConfiguration, changes: Mapping[str, Any]) -> SessionConfiguration:
    """Return a configuration with the fields of `session.update`; raises `InvalidRequest`."""
    if changes.get("type", configuration.type) != configuration.type:
        raise InvalidRequest(
            f"The type of this session is {configuration.type} and cannot be changed: connect again with "
            "intent=transcription in the query for transcripts only, or without it for responses",
            param="session.type",
        )
    if configuration.only_transcribes:
        _check_transcription(changes)
    changes = {**changes, "tracing": None, "truncation": "disabled", "include": None}
    if changes.get("model", configuration.model) != configuration.model:
        raise InvalidRequest(
            f"The model of this session is {configuration.model}: connect again to use another model",
            param="session.model",
        )
    return _converted(configuration, changes, "session")


def for_response(configuration: SessionConfiguration, changes: Mapping[str, Any]) -> SessionConfiguration:
    """Return the configuration of one response, with its fields of `response.create`."""
    known = {*ResponseDefaults.__struct_fields__, "audio"}
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise InvalidRequest(
            f"Unknown parameter: 'response.{unknown[0][:40]}'", param=f"response.{unknown[0][:40]}"
        )
    present = {name: value for name, value in changes.items() if value is not None}
    return _converted(configuration, present, "response")


def document(configuration: SessionConfiguration) -> dict[str, Any]:
    """Return the fields of a session as a client reads them."""
    fields = _fields(configuration)
    if configuration.only_transcribes:
        return {"type": configuration.type, "audio": {"input": fields["audio"]["input"]}, "include": None}
    return fields


def _fields(configuration: SessionConfiguration) -> dict[str, Any]:
    return cast("dict[str, Any]", msgspec.to_builtins(configuration))


def _check_transcription(changes: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` for fields that a transcription session does not have."""
    for path, known in _TRANSCRIPTION_FIELDS.items():
        fields = changes.get(path) if path else changes
        for name in cast("Mapping[str, Any]", fields) if isinstance(fields, Mapping) else ():
            if name not in known:
                param = ".".join(filter(None, ("session", path, name[:40])))
                raise InvalidRequest(f"Unknown parameter of a transcription session: '{param}'", param=param)
    audio_input = _value_at(changes, ("audio", "input"))
    if isinstance(audio_input, dict) and cast("dict[str, Any]", audio_input).get("transcription", ()) is None:
        param = "session.audio.input.transcription"
        raise InvalidRequest(f"{param} must be an object in a transcription session", param=param)


def _converted(
    configuration: SessionConfiguration,
    changes: Mapping[str, Any],
    root: str,
) -> SessionConfiguration:
    for path, problem, reason in _REFUSED:
        if _value_at(changes, path) is not None:
            raise InvalidRequest(f"{root}.{problem}: {reason}", param=".".join((root, *path)))
    merged = _merged(_fields(configuration), changes)
    if isinstance(merged["tools"], list):
        merged["tools"] = [_typed(tool) for tool in cast("list[Any]", merged["tools"])]
    try:
        changed = msgspec.convert(merged, SessionConfiguration)
    except msgspec.ValidationError as error:
        raise _problem(str(error), root) from error
    _check_servers(changed, root)
    return changed


def _typed(tool: Any) -> Any:
    """Return a tool with its type, which may be omitted for functions."""
    return {"type": "function", **cast("dict[str, Any]", tool)} if isinstance(tool, dict) else tool


def _check_servers(configuration: SessionConfiguration, root: str) -> None:
    """Raise `InvalidRequest` for servers other than the operator's, for approvals and repeated names."""
    labels: set[str] = set()
    for index, tool in enumerate(configuration.tools):
        if not isinstance(tool, ServerTools):
            continue
        path = f"{root}.tools[{index}]"
        for name in _REFUSED_OF_SERVERS:
            if getattr(tool, name) is not None:
                raise InvalidRequest(
                    f"{path}.{name} must be omitted: server_label must name a tool server of the operator",
                    param=f"{path}.{name}",
                )
        if tool.require_approval != "never":
            raise InvalidRequest(
                f"{path}.require_approval must be 'never': this server does not ask for approval",
                param=f"{path}.require_approval",
            )
        if tool.server_label in labels:
            raise InvalidRequest(
                f"{path}.server_label must be unique ({tool.server_label!r} is already used)",
                param=f"{path}.server_label",
            )
        labels.add(tool.server_label)


def _merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `old` updated with `changes`: objects of the same type are merged, other values replaced.

    A format and a choice of a tool are always replaced.
    """
    merged = dict(old)
    for name, value in changes.items():
        previous = merged.get(name)
        if isinstance(value, dict) and isinstance(previous, dict) and name not in ("format", "tool_choice"):
            change, before = cast("dict[str, Any]", value), cast("dict[str, Any]", previous)
            if change.get("type", before.get("type")) == before.get("type"):
                value = _merged(before, change)
        merged[name] = value
    return merged


def _value_at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


def _problem(message: str, root: str) -> InvalidRequest:
    text, _, path = message.partition(" - at `$")
    param = f"{root}{path.rstrip('`')}"
    if _UNKNOWN in text:
        param += f".{text.partition(_UNKNOWN)[2].rstrip('`')}"
        return InvalidRequest(f"Unknown parameter: '{param}'", param=param)
    return InvalidRequest(f"{param}: {text}", param=param)


def mapping(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object field of a client event, or `{}` if it is absent; raises `InvalidRequest`."""
    value = event.get(name)
    return {} if value is None else parsing.mapping(value, name)
