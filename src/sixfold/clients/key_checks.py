"""The providers: what a key of each unlocks, and a call that checks the key and creates nothing.

Sources: https://developers.openai.com/api/reference/resources/models/methods/list.md,
https://platform.claude.com/docs/en/api/models-list, https://replicate.com/docs/reference/http#account.get,
https://fal.ai/docs/platform-apis/v1/models/pricing (fal's only call that needs a key and no queue).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from sixfold.clients.anthropic import ANTHROPIC, VERSION
from sixfold.clients.fal import FAL
from sixfold.clients.openai import OPENAI
from sixfold.clients.provider_client import ProviderClient, ProviderEndpoint, ProviderLimits
from sixfold.clients.replicate import REPLICATE
from sixfold.settings import PROVIDERS

_LIMITS = ProviderLimits(call_seconds=15, attempts=3, waiting_seconds=5)


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """A provider: what its key unlocks, and a call that succeeds only with a valid key."""

    provider: ProviderEndpoint
    unlocks: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    base_url: str = ""

    @property
    def setting(self) -> str:
        """The setting of the key, such as `fal_key`."""
        return PROVIDERS[self.provider.name]


KEY_CHECKS: Mapping[str, KeyCheck] = {
    "fal": KeyCheck(
        FAL,
        "image, video and speech models by fal",
        "models/pricing",
        {"endpoint_id": "fal-ai/flux/dev"},
        "https://api.fal.ai/v1",
    ),
    "replicate": KeyCheck(REPLICATE, "images, videos and speech at Replicate", "account"),
    "openai": KeyCheck(OPENAI, "chat, images and speech by OpenAI", "models"),
    "anthropic": KeyCheck(ANTHROPIC, "chat by Anthropic", "models"),
}


async def check_key(name: str, key: str, *, base_url: str = "") -> None:
    """Check that a provider accepts a key; raises `EngineError` if not."""
    check = KEY_CHECKS[name]
    provider = dataclasses.replace(check.provider, base_url=check.base_url or check.provider.base_url)
    versions = VERSION if name == "anthropic" else {}
    async with httpx.AsyncClient(trust_env=False, headers=versions) as client:
        provider_client = ProviderClient(client, provider, key, base_url=base_url, limits=_LIMITS)
        await provider_client.get(check.path, check.params)
