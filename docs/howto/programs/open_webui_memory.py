"""
title: Sixfold memory
description: Recalls before each turn and remembers after it. Each user enters a key of their own.
requirements: httpx
"""

import httpx
from pydantic import BaseModel


class Filter:
    class Valves(BaseModel):
        url: str = "http://127.0.0.1:8600"
        tokens: int = 1500

    class UserValves(BaseModel):
        key: str = ""

    def __init__(self):
        self.valves = self.Valves()

    async def inlet(self, body: dict, __user__: dict) -> dict:
        """Add what the memory knows about the last message as a system message."""
        query = {"query": str(body["messages"][-1]["content"])[:10_000], "tokens": self.valves.tokens}
        found = await self._post("context", query, __user__)
        if found and found["sources"]:
            body["messages"].insert(0, {"role": "system", "content": found["text"]})
        return body

    async def outlet(self, body: dict, __user__: dict) -> dict:
        """Store the facts of the last question and its answer."""
        turn = [{"role": each["role"], "content": str(each["content"])} for each in body["messages"][-2:]]
        await self._post("remember", {"messages": turn, "source": "open webui"}, __user__)
        return body

    async def _post(self, path: str, document: dict, user: dict) -> dict | None:
        """Call the memory of a user; a chat continues without it if the call fails."""
        key = getattr(user.get("valves"), "key", "")
        if not key:
            return None
        try:
            async with httpx.AsyncClient(timeout=120) as client:
                headers = {"Authorization": f"Bearer {key}"}
                response = await client.post(f"{self.valves.url}/api/{path}", json=document, headers=headers)
                return response.raise_for_status().json()
        except httpx.HTTPError as error:
            print(f"The memory cannot be used: {error}")
            return None
