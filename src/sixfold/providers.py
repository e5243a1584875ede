"""The table of hosted providers, which all other code that lists providers reads.

The settings, `sixfold provider`, `sixfold doctor`, the check of `sixfold.toml`, the catalog and the gateway
read this table; a test compares it with `docs/`. A row also requires:

- images, videos, speech, captions: an engine in `engines/providers`, which a row of `providers.toml` there
  names for each capability;
- chats with OpenAI's API: `dialect="openai"`, and prices in `data/gateway_prices.toml`;
- chats with another API: an adapter in `clients/chat`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class ProviderSpec(msgspec.Struct, frozen=True):
    """A provider: its name on the command line, how it receives the key, and what a key unlocks.

    `name` contains only lower-case letters and digits: the names of its engines begin with it and a hyphen.
    `key` is the setting of the key. `base_url` may contain further settings in braces; `parameters` has their
    defaults, and the provider is not used while one of them is empty. `dialect` names the API of its chats;
    if it is empty, the provider does not offer chats. `check` is a path that only a valid key may GET, at
    `check_url` if it is set, or empty if the provider has none.
    `refusal` is the function that reads an error response, as `clients.openai.refusal` does.
    """

    name: str
    title: str
    key: str
    base_url: str
    unlocks: str
    keys_url: str
    dialect: str = ""
    header: str = "Authorization"
    scheme: str = "Bearer"
    # Whether the provider's API includes OpenAI's `/responses`.
    responses: bool = False
    # Whether the provider's chat models read PDF files.
    documents: bool = False
    # Headers of every request besides the key.
    headers: Mapping[str, str] = {}
    # Names of chat request fields that differ from OpenAI's; see `clients/chat/request_fields.py`.
    fields: Mapping[str, str] = {}
    # Rows of `data/gateway_prices.toml`: those with this prefix, or those without one.
    price_table: str = ""
    # The number of tokens that a price in the list of models is for; 0 if the list has no prices.
    price_unit: int = 0
    check: str = "models"
    check_url: str = ""
    refusal: str = "sixfold.clients.openai:refusal"
    parameters: Mapping[str, str] = {}

    @property
    def variable(self) -> str:
        """The environment variable of the key, besides the one with the prefix `SIXFOLD_`."""
        return self.key.upper()

    def base_url_with(self, values: Mapping[str, str]) -> str:
        """Return the base URL with these parameters, or an empty string if a parameter is missing."""
        return self._filled(self.base_url, values)

    def check_url_with(self, values: Mapping[str, str]) -> str:
        """Return the base URL for `check` with these parameters, or an empty string if one is missing."""
        return self._filled(self.check_url or self.base_url, values)

    def _filled(self, url: str, values: Mapping[str, str]) -> str:
        parameters = {name: values.get(name) or default for name, default in self.parameters.items()}
        return url.format(**parameters) if all(parameters.values()) else ""

    def key_headers(self, key: str) -> dict[str, str]:
        return {**self.headers, **({self.header: f"{self.scheme} {key}".strip()} if key else {})}


# The banner of `sixfold serve` names the keys of the first four. Models try image engines in this order.
_ROWS = (
    ProviderSpec(
        name="fal",
        title="fal",
        key="fal_key",
        base_url="https://queue.fal.run",
        unlocks="image, video and speech models by fal",
        keys_url="https://fal.ai/dashboard/keys",
        scheme="Key",
        # The only endpoint that requires a key and has no side effects.
        check="models/pricing?endpoint_id=fal-ai/flux/dev",
        check_url="https://api.fal.ai/v1",
        refusal="sixfold.clients.fal:refusal",
    ),
    ProviderSpec(
        name="replicate",
        title="Replicate",
        key="replicate_api_token",
        base_url="https://api.replicate.com/v1",
        unlocks="images, videos and speech at Replicate",
        keys_url="https://replicate.com/account/api-tokens",
        check="account",
        refusal="sixfold.clients.replicate:refusal",
    ),
    ProviderSpec(
        name="openai",
        title="OpenAI",
        key="openai_api_key",
        base_url="https://api.openai.com/v1",
        unlocks="chat, images and speech by OpenAI",
        keys_url="https://platform.openai.com/api-keys",
        dialect="openai",
        responses=True,
        documents=True,
    ),
    ProviderSpec(
        name="anthropic",
        title="Anthropic",
        key="anthropic_api_key",
        base_url="https://api.anthropic.com/v1",
        unlocks="chat by Anthropic",
        keys_url="https://platform.claude.com/settings/keys",
        dialect="anthropic",
        documents=True,
        header="x-api-key",
        scheme="",
        headers={"anthropic-version": "2023-06-01"},
    ),
    ProviderSpec(
        name="azure",
        title="Azure OpenAI",
        key="azure_openai_api_key",
        base_url="{azure_openai_endpoint}/openai/v1",
        unlocks="chat, images and speech by OpenAI's models on Azure",
        keys_url="https://portal.azure.com",
        dialect="openai",
        responses=True,
        documents=True,
        header="api-key",
        scheme="",
        parameters={"azure_openai_endpoint": ""},
    ),
    ProviderSpec(
        name="bedrock",
        title="Amazon Bedrock",
        key="aws_bearer_token_bedrock",
        base_url="https://bedrock-runtime.{bedrock_region}.amazonaws.com",
        unlocks="chat by the models of Amazon Bedrock",
        keys_url="https://console.aws.amazon.com/bedrock/home#/api-keys",
        dialect="converse",
        price_table="bedrock",
        check="foundation-models",
        check_url="https://bedrock.{bedrock_region}.amazonaws.com",
        parameters={"bedrock_region": "us-east-1"},
    ),
    ProviderSpec(
        name="gemini",
        title="Gemini",
        key="gemini_api_key",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        unlocks="chat by Google's Gemini",
        keys_url="https://aistudio.google.com/apikey",
        dialect="gemini",
        header="x-goog-api-key",
        scheme="",
        price_table="gemini",
    ),
    ProviderSpec(
        name="vertex",
        title="Vertex AI",
        key="vertex_api_key",
        base_url=(
            "https://aiplatform.googleapis.com/v1/projects/{vertex_project}/locations/global/publishers/google"
        ),
        unlocks="chat by Google's Gemini on Vertex AI",
        keys_url="https://console.cloud.google.com/iam-admin/serviceaccounts",
        dialect="gemini",
        header="x-goog-api-key",
        scheme="",
        price_table="gemini",
        check="models/gemini-2.5-flash",
        check_url="https://aiplatform.googleapis.com/v1/publishers/google",
        parameters={"vertex_project": ""},
    ),
    ProviderSpec(
        name="mistral",
        title="Mistral",
        key="mistral_api_key",
        base_url="https://api.mistral.ai/v1",
        unlocks="chat and embeddings by Mistral",
        keys_url="https://console.mistral.ai/api-keys",
        dialect="openai",
        price_table="mistral",
        # This API rejects unknown fields.
        fields={
            "max_completion_tokens": "max_tokens",
            "seed": "random_seed",
            "stream_options": "",
            "user": "",
            "store": "",
            "service_tier": "",
            "logprobs": "",
            "top_logprobs": "",
            "logit_bias": "",
            "verbosity": "",
            "messages.reasoning_content": "",
            "messages.reasoning": "",
            "messages.refusal": "",
            "messages.annotations": "",
            "messages.audio": "",
            "messages.function_call": "",
        },
    ),
    ProviderSpec(
        name="openrouter",
        documents=True,
        title="OpenRouter",
        key="openrouter_api_key",
        base_url="https://openrouter.ai/api/v1",
        unlocks="chat by the models of OpenRouter",
        keys_url="https://openrouter.ai/settings/keys",
        dialect="openai",
        price_table="openrouter",
        price_unit=1,
        # The list of models needs no key.
        check="key",
    ),
    ProviderSpec(
        name="groq",
        title="Groq",
        key="groq_api_key",
        base_url="https://api.groq.com/openai/v1",
        unlocks="chat and speech by Groq",
        keys_url="https://console.groq.com/keys",
        dialect="openai",
        price_table="groq",
    ),
    ProviderSpec(
        name="together",
        title="Together",
        key="together_api_key",
        base_url="https://api.together.xyz/v1",
        unlocks="chat, images and embeddings by Together",
        keys_url="https://api.together.ai/settings/api-keys",
        dialect="openai",
        price_table="together",
        price_unit=1_000_000,
    ),
    ProviderSpec(
        name="deepseek",
        title="DeepSeek",
        key="deepseek_api_key",
        base_url="https://api.deepseek.com/v1",
        unlocks="chat by DeepSeek",
        keys_url="https://platform.deepseek.com/api_keys",
        dialect="openai",
        price_table="deepseek",
    ),
)
PROVIDERS: Mapping[str, ProviderSpec] = {row.name: row for row in _ROWS}
# Providers of chats, in the order in which the gateway prefers them.
CHAT_PROVIDERS: Mapping[str, ProviderSpec] = {row.name: row for row in _ROWS if row.dialect}
