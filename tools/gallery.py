"""Remake the pictures of the README and the docs with the product itself: `make gallery`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from sixfold import assembly
from sixfold.core.accounts import accounts
from sixfold.core.work.pipeline import Order
from sixfold.settings import Settings

PICTURES = Path("docs/pictures")
WANTED = {
    "lighthouse.webp": ("create_image", "a lighthouse at sunset over a calm sea", 1360, 768, 7),
}


async def main() -> None:
    """Order every picture and keep its bytes, manifest included."""
    with tempfile.TemporaryDirectory() as folder:
        async with assembly.running(assembly.build(Settings(data_dir=Path(folder)))) as product:
            owner = await product.database.write(accounts.create("gallery@localhost", operator=True))
            for name, (model, prompt, width, height, seed) in WANTED.items():
                inputs = {"prompt": prompt, "width": width, "height": height, "seed": seed}
                order = Order(owner.id, model, inputs, "gallery", "req_gallery")
                made = await product.pipeline.wait(await product.pipeline.submit(order), 60)
                if made.output is None:
                    raise SystemExit(f"{name} was not made: {made.error}")
                data = await product.blobs.get(made.output.files[0].blob)
                (PICTURES / name).write_bytes(data)
                print(f"{PICTURES / name}  {len(data):,} bytes")


if __name__ == "__main__":
    asyncio.run(main())
