"""Check of a provider's key with a call that requires a valid key and is free of charge."""

from __future__ import annotations

from sixfold.clients.chat.credentials import credentials_of
from sixfold.clients.chat.transports.scheme import SchemeTransport
from sixfold.clients.provider_client import ProviderClient, ProviderEndpoint, ProviderLimits
from sixfold.core.catalog.engines import EngineError
from sixfold.core.gateway.ports import UpstreamFailure
from sixfold.net.clients import limited_client
from sixfold.net.response_memory import response_memory
from sixfold.providers import ProviderSpec

_LIMITS = ProviderLimits(call_seconds=15, attempts=3, waiting_seconds=5)


async def check(spec: ProviderSpec, key: str, base_url: str, limits: ProviderLimits = _LIMITS) -> None:
    """Return if the provider accepts the key; raises `EngineError` otherwise."""
    if not spec.check:
        raise EngineError(f"{spec.title} has no request that checks a key: use it for a run instead")
    endpoint = ProviderEndpoint(spec)
    transport = SchemeTransport(limits.connect_seconds, limits.call_seconds)
    credentials, headers = credentials_of(spec, transport), None
    try:
        if credentials is not None:
            headers = await credentials.headers(key, "GET", f"{base_url.rstrip('/')}/{spec.check}", b"")
            key = ""
    except UpstreamFailure as error:
        raise EngineError(f"{spec.title} {error}") from error
    finally:
        await transport.aclose()
    async with limited_client() as client:
        client.headers.update(headers or {})
        with response_memory(base_url) as memory:
            provider = ProviderClient(client, endpoint, key, base_url=base_url, limits=limits, memory=memory)
            await provider.get(spec.check)
