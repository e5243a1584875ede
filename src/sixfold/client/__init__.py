"""A typed client for a Sixfold server.

    from sixfold import Client

    with Client(api_key="…") as client:
        prediction = client.run("ra1", {"prompt": "a red sailing boat on a calm lake"})
        client.save(prediction, "boat.png")
        client.memory.search("Who works at Acme?")

The methods of `AsyncClient` are the same, as coroutines. For chat, images and speech of the gateway, use the
official clients of OpenAI, Anthropic or Ollama. `sixfold.clients` is internal: it contains the clients of
model servers that the server uses.
"""

from sixfold.client.async_client import AsyncClient
from sixfold.client.errors import ApiError, ClientError, ConnectionFailed, PredictionFailed, WaitExpired
from sixfold.client.sync_client import Client

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "ConnectionFailed",
    "PredictionFailed",
    "WaitExpired",
]
