"""`import litellm`: the tables, the keys, what is not imported, and a server that uses the result."""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.cli.imports import file_limits
from sixfold.core import money
from sixfold.core.gateway import policy
from tests.fakes.chat_servers import model_server
from tests.unit.cli.conftest import Commands, Starter, inside

CONFIG = (Path(__file__).parents[2] / "corpora" / "litellm" / "config.yaml").read_text()


@pytest.fixture(autouse=True)
def azure_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_EU", "secret-eu")


def import_(sixfold: Commands, config: str, *words: str) -> Any:
    sixfold.folder.parent.mkdir(exist_ok=True)
    file = sixfold.folder.parent / "config.yaml"
    file.write_text(config)
    return sixfold.ok("import", "litellm", str(file), *words)


def table(sixfold: Commands) -> dict[str, Any]:
    return tomllib.loads((sixfold.folder / "sixfold.toml").read_text())["gateway"]


def reasons(document: dict[str, Any]) -> dict[str, str]:
    return {row["setting"]: row["reason"] for row in document["not_imported"]}


def test_models_become_servers_aliases_and_prices(sixfold: Commands) -> None:
    document = import_(sixfold, CONFIG, "--write")
    gateway = table(sixfold)
    policy.parse(gateway)
    assert gateway["upstreams"] == {
        "azure-europe": {
            "kind": "azure",
            "base_url": "https://europe.openai.azure.com/openai/v1",
            "api_key_env": "AZURE_EU",
            "models": ["gpt-eu"],
        },
        "azure-canada": {
            "kind": "azure",
            "base_url": "https://canada.openai.azure.com/openai/v1",
            "api_key": "sk-literal-123",
            "models": ["gpt-ca"],
        },
        "bedrock-eu-west-1": {
            "kind": "bedrock",
            "base_url": "https://bedrock-runtime.eu-west-1.amazonaws.com",
        },
        "openai-10-0-0-5": {"kind": "openai", "base_url": "http://10.0.0.5:4000/v1"},
        "ollama-gpu-box": {"kind": "ollama", "base_url": "http://gpu-box:11434/v1"},
    }
    weighted = [
        {"target": "azure-europe/gpt-eu", "weight": 6},
        {"target": "azure-canada/gpt-ca", "weight": 12},
        {"target": "openai/gpt-5.4-nano", "weight": 0},
    ]
    assert gateway["aliases"] == {
        "gpt": weighted,
        "small": ["openai/gpt-5.4-nano", "ollama-gpu-box/llama3.2"],
        "claude": ["bedrock-eu-west-1/anthropic.claude-v1"],
        "lab": ["openai-10-0-0-5/org/opt"],
        "home": ["ollama-gpu-box/llama3.2"],
        "gpt-4": weighted,
    }
    assert gateway["prices"] == {
        "openai/gpt-5.4-nano": {"input_per_million_usd": "0.2", "output_per_million_usd": "1.25"}
    }
    assert (gateway["retries"], gateway["timeout_seconds"]) == (3, 30)
    assert document["variables"] == ["AZURE_EU", "OPENAI_API_KEY"]


def test_everything_else_is_listed_with_a_reason(sixfold: Commands) -> None:
    result = reasons(import_(sixfold, CONFIG))
    assert result.keys() == {
        "model_list[2].litellm_params",
        "model_list[7]",
        "model_list[8]",
        "model_list[9]",
        "fallbacks of gpt",
        "general_settings.master_key",
        "environment_variables",
    }
    assert "temperature" in result["model_list[2].litellm_params"]
    assert "LAB_URL" in result["model_list[9]"]
    assert "REDIS_HOST" in result["environment_variables"]
    assert not (sixfold.folder / "sixfold.toml").exists()


def test_a_file_keeps_its_text_and_its_settings(sixfold: Commands) -> None:
    sixfold.folder.mkdir(parents=True)
    before = (
        "# my server\nport = 8700\n\n[gateway]\nretries = 1 # enough\n\n[gateway.aliases] # mine\n"
        'small = ["ollama/qwen3"]\n\n[gateway.upstreams.mine]\nkind = "openai"\n'
        'base_url = "http://10.0.0.5:4000/v1"\n'
    )
    (sixfold.folder / "sixfold.toml").write_text(before)
    result = reasons(import_(sixfold, CONFIG, "--write"))
    text, gateway = (sixfold.folder / "sixfold.toml").read_text(), table(sixfold)
    for line in before.splitlines():
        assert line in text
    assert (gateway["retries"], gateway["timeout_seconds"]) == (1, 30)
    assert gateway["aliases"]["small"] == ["ollama/qwen3"]
    assert gateway["aliases"]["lab"] == ["mine/org/opt"]
    assert {"[gateway] retries", "[gateway.aliases] small"} <= result.keys()
    second_reasons = reasons(import_(sixfold, CONFIG, "--write"))
    assert (sixfold.folder / "sixfold.toml").read_text() == text
    assert "[gateway.aliases] lab" in second_reasons


def test_a_new_file_is_private_and_no_key_is_printed(sixfold: Commands) -> None:
    import_(sixfold, CONFIG, "--write")
    assert (sixfold.folder / "sixfold.toml").stat().st_mode & 0o777 == 0o600
    printed = sixfold("import", "litellm", str(sixfold.folder.parent / "config.yaml"))
    assert printed.status == 0
    assert "sk-literal-123" not in printed.out + printed.err
    assert "Nothing was changed" in printed.out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file must be a mapping"),
        ("model_list: []", "model_list is missing or empty"),
        ("model_list: {a: 1}", "model_list must be a list"),
        ("model_list: [1]", "model_list[0] must be a mapping"),
        ("model_list: [{litellm_params: {model: gpt-4}}]", "model_list[0].model_name is missing"),
        ("model_list: [{model_name: a}]", "model_list[0].litellm_params.model is missing"),
        ("model_list: [", "is not YAML"),
        (f"a: 0x{'f' * 5000}", "a number has more than 100 characters"),
        (f"a: 1{':59' * 100_000}", "a number has more than 100 characters"),
        ("a: 2001-99-99", "is not YAML: month must be"),
        ("a: &a [x]\nb: !!python/object:os.system {}", "is not YAML"),
        ("model_list:\n" + "- {model_name: a, litellm_params: {model: gpt-4}}\n" * 1001, "at most 1,000"),
    ],
)
def test_invalid_file_is_refused_and_writes_nothing(sixfold: Commands, text: str, reason: str) -> None:
    file = sixfold.folder.parent / "config.yaml"
    file.write_text(text)
    assert reason in sixfold.error_of("import", "litellm", str(file), "--write")
    assert not sixfold.folder.exists()


def test_parsing_of_a_configuration_has_a_time_limit(
    sixfold: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_limits, "MAX_SECONDS", 1)
    file = sixfold.folder.parent / "config.yaml"
    file.write_text("model_list: [" + ("[" * 200 + "]" * 200 + ",") * 2_000 + "]")
    before = time.process_time()
    assert "more than 1 s of processor time" in sixfold.error_of("import", "litellm", str(file))
    assert time.process_time() - before < 10


@pytest.mark.parametrize("price", ["1e-999999", "1e999990", "1e30", "1e-40"])
def test_a_price_with_a_large_exponent_is_not_imported(sixfold: Commands, price: str) -> None:
    row = f'- {{model_name: a, litellm_params: {{model: gpt-4, input_cost_per_token: "{price}"}}}}\n'
    document = import_(sixfold, "model_list:\n" + row)
    assert reasons(document)["model_list[0].input_cost_per_token"] == f"'{price}' is not an amount"


def test_a_result_that_would_not_be_valid_is_not_written(sixfold: Commands) -> None:
    sixfold.folder.mkdir(parents=True)
    before = 'gateway = { aliases = { a = "ollama/b" } }\n'
    (sixfold.folder / "sixfold.toml").write_text(before)
    file = sixfold.folder.parent / "config.yaml"
    file.write_text(CONFIG)
    assert "cannot be extended" in sixfold.error_of("import", "litellm", str(file), "--write")
    assert (sixfold.folder / "sixfold.toml").read_text() == before


def test_a_missing_variable_is_named_before_anything_is_written(
    sixfold: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_EU")
    file = sixfold.folder.parent / "config.yaml"
    file.write_text(CONFIG)
    assert "AZURE_EU" in sixfold.error_of("import", "litellm", str(file), "--write")
    assert not sixfold.folder.exists()


def key(**fields: Any) -> dict[str, Any]:
    return {"token": "88dc28", "key_alias": "k", "models": [], **fields}


KEYS = [
    key(key_alias="ci", models=["small", "gone"], max_budget=1.5, budget_duration="1d", rpm_limit=60),
    key(key_alias="team", models=["all-team-models"], max_budget=20, budget_duration="30d", tpm_limit=9000),
    key(key_alias="weekly", max_budget=7, budget_duration="7d", expires="2099-01-01T00:00:00.000Z"),
    key(key_alias="total", max_budget=3),
    key(key_alias="old", expires="2020-01-01T00:00:00Z"),
    key(key_alias="locked", blocked=True),
    key(key_alias="none", models=["gone"]),
]


def test_keys_get_new_secrets_with_the_same_limits(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    file = sixfold.folder.parent / "keys.json"
    file.write_text(json.dumps({"keys": KEYS, "total_count": len(KEYS)}))
    document = import_(sixfold, CONFIG, "--keys", str(file), "--account", "a@b.c", "--write")
    assert [row["name"] for row in document["keys"]] == ["ci", "team", "weekly", "total"]
    rows = {row["id"]: row for row in sixfold.ok("key", "list", "a@b.c")["keys"]}
    limits = {
        row["name"]: (
            rows[row["id"]]["services"],
            rows[row["id"]]["budget_day_usd"],
            rows[row["id"]]["budget_month_usd"],
            rows[row["id"]]["rpm"],
            rows[row["id"]]["tpm"],
            rows[row["id"]]["expires_at"],
        )
        for row in document["keys"]
    }
    assert limits == {
        "ci": (["small"], "1.50", None, 60, None, None),
        "team": ([], None, "20.00", None, 9000, None),
        "weekly": ([], None, "7.00", None, None, "2099-01-01T00:00:00.000Z"),
        "total": ([], None, "3.00", None, None, None),
    }
    assert {"ci", "weekly.budget_duration", "total.budget_duration", "old", "locked", "none"} <= reasons(
        document
    ).keys()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ('["88dc28"]', "return_full_object=true"),
        ('{"a": 1}', "GET /key/list"),
        ('[{"max_budget": "much"}]', "not an amount"),
        ('[{"expires": "soon"}]', "not a date"),
    ],
)
def test_invalid_keys_are_refused_and_write_nothing(sixfold: Commands, text: str, reason: str) -> None:
    config, keys = sixfold.folder.parent / "config.yaml", sixfold.folder.parent / "keys.json"
    config.write_text(CONFIG)
    keys.write_text(text)
    words = ("import", "litellm", str(config), "--keys", str(keys), "--account", "a@b.c", "--write")
    assert reason in sixfold.error_of(*words)
    assert not (sixfold.folder / "sixfold.toml").exists()


def test_an_unknown_account_leaves_the_file_unchanged(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    config, keys = sixfold.folder.parent / "config.yaml", sixfold.folder.parent / "keys.json"
    config.write_text(CONFIG)
    keys.write_text(json.dumps(KEYS))
    words = ("import", "litellm", str(config), "--keys", str(keys), "--account", "x@b.c", "--write")
    assert "x@b.c" in sixfold.error_of(*words)
    assert not (sixfold.folder / "sixfold.toml").exists()
    assert len(sixfold.ok("key", "list", "a@b.c")["keys"]) == 1


async def test_server_serves_an_imported_alias(tmp_path: Path, start: Starter) -> None:
    async with model_server() as upstream:
        (tmp_path / "config.yaml").write_text(
            "model_list:\n- model_name: team-chat\n"
            f"  litellm_params: {{model: openai/large, api_base: '{upstream.url}', api_key: secret}}\n"
            "  model_info: {input_cost_per_token: 0.000001, output_cost_per_token: 0.000002}\n"
        )
        folder = tmp_path / "data"
        words = ("account", "create", "a@b.c", "--credit", "1", "--json")
        account = (await asyncio.to_thread(inside, folder, *words)).json
        result = inside(folder, "import", "litellm", str(tmp_path / "config.yaml"), "--write")
        assert result.status == 0, result.err
        server = await asyncio.to_thread(start, folder)
        async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=30) as client:
            response = await client.post(
                "/v1/chat/completions",
                headers={"Authorization": f"Bearer {account['api_key']}"},
                json={"model": "team-chat", "messages": [{"role": "user", "content": "hello"}]},
            )
        assert response.status_code == 200, response.text
        usage = response.json()["usage"]
        visible_result = await asyncio.to_thread(inside, folder, "account", "show", "a@b.c", "--json")
        cost = usage["prompt_tokens"] + 2 * usage["completion_tokens"]
        assert money.parse_usd(visible_result.json["balance_usd"]) == money.MICROS_PER_USD - cost
