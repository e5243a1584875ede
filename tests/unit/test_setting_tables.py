"""Conversion of tables of `sixfold.toml` to structs, and the form of its errors."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from sixfold import setting_tables
from sixfold.clients.chat.llama import options
from sixfold.core.gateway import policy
from sixfold.core.gateway.policy import GatewayPolicy


class Table(msgspec.Struct):
    url: Annotated[str, Meta(pattern="^http", description="a URL", extra=setting_tables.SECRET)]
    seconds: Annotated[float, Meta(ge=1, le=60)] = 10.0
    slots: Annotated[int, Meta(ge=1, le=4)] | None = None
    access: Literal["one", "all"] = "one"
    tools: tuple[str, ...] = ()
    local: bool = False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "[a] must have url, a URL"),
        ({"url": "secret"}, "[a] url must be a URL"),
        ({"seconds": 0}, "[a] seconds must be a number from 1 to 60 (got 0)"),
        ({"seconds": True}, "[a] seconds must be a number from 1 to 60 (got True)"),
        ({"seconds": math.nan}, "[a] seconds must be a number from 1 to 60 (got nan)"),
        ({"slots": 1.5}, "[a] slots must be a whole number from 1 to 4 (got 1.5)"),
        ({"access": "none"}, "[a] access must be all or one (got 'none')"),
        ({"tools": "x"}, "[a] tools must be a list of names (got 'x')"),
        ({"local": 1}, "[a] local must be true or false (got 1)"),
        ({"b": 1}, "[a] has an unknown setting 'b': use access, later, local, seconds, slots, tools, url"),
        (3, "[a] must be a table (got 3)"),
    ],
)
def test_error_names_the_setting_its_value_and_the_valid_values(values: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        setting_tables.convert("[a]", values, Table, ("later",))
    assert str(caught.value) == message


def test_table_is_converted_without_the_settings_of_the_caller() -> None:
    values = {"url": "http://a", "seconds": 2, "tools": ["x"], "later": object()}
    table = setting_tables.convert("[a]", values, Table, ("later",))
    assert table == Table("http://a", 2.0, tools=("x",))
    assert type(table.seconds) is float


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"retries": 11}, "[gateway] retries must be a whole number from 0 to 10 (got 11)"),
        ({"cache": "yes"}, "[gateway] cache must be true or false (got 'yes')"),
        ({"cach": True}, "[gateway] has an unknown setting 'cach': did you mean cache?"),
        ({"aliases": []}, "[gateway.aliases] must be a table"),
        (
            {"upstreams": {"a": {"kind": "vllm", "base_url": "ftp://a"}}},
            "[gateway.upstreams.a] base_url must be an http or https address",
        ),
        (
            {"upstreams": {"a": {"kind": "vllm", "model": ["x"]}}},
            "[gateway.upstreams.a] has an unknown setting 'model'",
        ),
    ],
)
def test_errors_of_the_gateway_have_the_same_form(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared
        policy.parse(table)
    assert str(caught.value).startswith(message)


def test_settings_of_the_gateway_are_in_its_policy() -> None:
    row = {"kind": "vllm", "base_url": "http://a:1/", "models": ["x"], "api_key_env": "A"}
    result = policy.parse({"retries": 3, "cache_seconds": 9, "upstreams": {"a": row}})
    assert (result.retries, result.cache_seconds, result.max_tokens) == (3, 9.0, GatewayPolicy().max_tokens)
    [server] = result.servers
    assert (server.base_url, server.models, server.local) == ("http://a:1", ("x",), False)


def test_options_of_gguf_models_have_the_same_form() -> None:
    with pytest.raises(ValueError, match=r"threads must be a whole number from 1 to 1024 \(got 0\)"):
        options.parse("a", {"threads": 0})
    assert options.parse("a", {"source": "x.gguf", "gpu_layers": 0}).gpu_layers == 0
