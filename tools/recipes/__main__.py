"""Run the recipes of docs/howto/programs.md with the real programs, installed into a separate folder.

    make recipes                       all of them
    make recipes ARGS="codex n8n"      some of them

The server and its model server, a stand-in that repeats words, run in this process on loopback. A program
that cannot be installed is skipped, with the reason in the table. The exit status is 1 if a program does not
print the expected output.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from sixfold.app import catalog as app_catalog
from tests.api.gateway import listening, running_gateway
from tests.harness.backends import FILES
from tools.recipes import installation
from tools.recipes.installation import NotInstalled
from tools.recipes.place import Place, RecipeFailed
from tools.recipes.programs import RECIPES, Recipe

HOME = Path(tempfile.gettempdir()) / "sixfold-recipes"
_MODEL = "acme/small"
_FREE = {"acme/small": {"input_per_million_usd": "0", "output_per_million_usd": "0"}}


async def _try_sign_in(recipe: Recipe, home: Path, place: Place) -> tuple[str, str]:
    try:
        await asyncio.to_thread(installation.install, recipe.name, recipe.packages, home)
        output = await recipe.run(place)
    except NotInstalled as error:
        return "skipped", str(error)
    except (RecipeFailed, OSError, TimeoutError) as error:
        return "fails", str(error) or type(error).__name__
    missing = [text for text in recipe.prints if text not in output]
    return ("fails", f"does not print {missing[0]!r}:\n{output[-3000:]}") if missing else ("works", "")


async def _run(names: list[str], home: Path) -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as data:
        async with (
            running_gateway(
                Path(data),
                settings=FILES,
                models=app_catalog.models_document(),
                prices=_FREE,
                aliases={"default": _MODEL},
            ) as gateway,
            listening(gateway.app.asgi) as origin,
        ):
            gateway.acme.tool_word = "Oslo"
            for name in names or RECIPES:
                began, folder = time.monotonic(), home / name
                place = Place(folder, origin, gateway.app.key, _MODEL)
                state, why = await _try_sign_in(RECIPES[name], folder, place)
                failures += state == "fails"
                version = installation.version(folder, RECIPES[name].packages)
                took = time.monotonic() - began
                print(f"{name:<14}{version:<12}{state:<9}{took:5.0f} s  {why}", flush=True)
    return min(failures, 1)


def main() -> int:
    """Run the recipes on the command line, or all; return the exit status."""
    parser = argparse.ArgumentParser(prog="make recipes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *RECIPES], metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--folder", type=Path, default=HOME, help=f"where programs are installed ({HOME})")
    options = parser.parse_args()
    return asyncio.run(_run(options.names, options.folder))


if __name__ == "__main__":
    sys.exit(main())
