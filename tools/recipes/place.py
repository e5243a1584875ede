"""The environment of a recipe, and the execution of programs in it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "programs"
_SECONDS = 240


class RecipeFailed(Exception):
    """Raised if a program did not behave as expected."""


@dataclass(frozen=True, slots=True)
class Place:
    """The environment of a recipe: its folder, and the server with a key and a chat model."""

    folder: Path
    origin: str
    key: str
    model: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a program, with a separate home folder."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": f"{self.folder}/node_modules/.bin:{os.environ['PATH']}",
            "HOME": str(home),
            "SIXFOLD_URL": self.origin,
            "SIXFOLD_API_KEY": self.key,
            "SIXFOLD_MODEL": self.model,
            "NO_PROXY": "127.0.0.1,localhost",
        }

    async def call(self, *command: str, **variables: str) -> str:
        """Run a program in the folder and return its output; raises `RecipeFailed` if it fails."""
        child = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_SECONDS):
                output, _ = await child.communicate()
        except TimeoutError:
            child.kill()
            await child.wait()
            raise
        text = output.decode("utf-8", "replace")
        if child.returncode:
            raise RecipeFailed(f"{command[0]} ended with {child.returncode}:\n{text[-3000:]}")
        return text
