"""Train `src/sixfold/engines/image/upscale/network.npz`, the network that enlarges images two or four times.

.venv/bin/python -m tools.train_upscaler FOLDER
    FOLDER holds the unpacked packages of tools/train_upscaler.toml, each in a folder of its name;
    torch is needed (`make weights`), and one core for about six minutes

The network is trained on photographs whose licenses allow it and on drawings and text that this script draws,
reduced with three filters. It is trained with the rounding of its integer arithmetic (quantization-aware), so
that the numbers written are those that were trained. The same torch on the same kind of processor writes the
same file; its hash is printed and is in docs/reference/picture-templates.md.
"""

from __future__ import annotations

import argparse
import hashlib
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import nn
from torch.nn import functional

from sixfold.engines.image.upscale import network

Pixels = NDArray[np.uint8]

OUT = Path(network.__file__).with_name("network.npz")
PHOTOGRAPHS = Path(__file__).with_suffix(".toml")
BATCH, SIDE = 4, 40
# Batches, highest learning rate, and number of crops from which the most detailed one is selected. At first,
# plain skies contribute little, but without them soft photographs are sharpened too much.
PHASES = ((10_000, 2e-3, 3), (1_000, 5e-4, 1))
# Pixels at the border of a patch that the loss ignores, since the network lacks their neighbors.
RIM = 3
_SEED = 27
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .,;:!?&%$()-+=/ÄÖÜäöüßéèñç"
_FILTERS = (Image.Resampling.BICUBIC, Image.Resampling.LANCZOS, Image.Resampling.BOX)


def photographs(folder: Path) -> list[Pixels]:
    """Return the photographs of the table, each reduced to several sizes, which makes them sharp."""
    result: list[Pixels] = []
    for group in tomllib.loads(PHOTOGRAPHS.read_text("utf-8")).values():
        for name in group["photographs"]:
            path = folder / group["package"] / group["folder"] / name
            with Image.open(path) as opened:
                whole = opened.convert("RGB")
            for divisor in (2, 3, 5) if max(whole.size) > 2000 else (1.25, 2):
                size = (round(whole.width / divisor), round(whole.height / divisor))
                result.append(np.asarray(whole.resize(size, Image.Resampling.BOX)))
    return result


def drawing(random: np.random.Generator, side: int) -> Pixels:
    """Return flat shapes, lines and text in random colors."""
    over = 3
    sheet = Image.new("RGB", (side * over, side * over), _color(random))
    pen = ImageDraw.Draw(sheet)
    for _ in range(int(random.integers(2, 9))):
        places = [random.integers(-20, side * over + 20, 2) for _ in range(5)]
        points = [(int(across), int(down)) for across, down in places]
        color, width = _color(random), int(random.integers(1, 8) * over * side / 192 + 1)
        match int(random.integers(0, 4)):
            case 0:
                pen.polygon(points[: int(random.integers(3, 6))], fill=color)
            case 1:
                corners = np.sort(np.array(points[:2]), 0).reshape(-1).tolist()
                pen.ellipse(corners, fill=color, outline=_color(random), width=width)
            case 2:
                pen.line(points[:3], fill=color, width=width, joint="curve")
            case _:
                font = ImageFont.load_default(int(random.integers(8, 40) * over * side / 192 + 6))
                text = "".join(random.choice(list(_LETTERS), 14))
                pen.text(points[0], f"{text}\n{text[::-1]}", fill=color, font=font)
    return np.asarray(sheet.resize((side, side), Image.Resampling.BOX))


def _color(random: np.random.Generator) -> tuple[int, int, int]:
    if random.random() < 0.4:
        return ((0, 0, 0), (255, 255, 255))[int(random.integers(0, 2))]
    red, green, blue = map(int, random.integers(0, 256, 3))
    return red, green, blue


class Patches:
    """Pairs of small patches and their targets."""

    def __init__(self, images: Sequence[Pixels], seed: int, crops: int) -> None:
        self._images = images
        self._random = np.random.default_rng(seed)
        self._crops = crops

    def batch(self, scale: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return small patches and the residuals of bicubic scaling, in units of 128 levels."""
        small, lacking = zip(*(self._pair(scale) for _ in range(BATCH)), strict=True)
        return _planes(small), _planes(lacking)

    def _pair(self, scale: int) -> tuple[Any, Any]:
        random, side = self._random, SIDE * scale
        large = drawing(random, side) if random.random() < 0.2 else self._crop(side)
        if random.random() < 0.5:
            large = large[:, ::-1]
        large = np.ascontiguousarray(np.rot90(large, int(random.integers(0, 4))))
        reduced = Image.fromarray(large).resize((SIDE, SIDE), _FILTERS[int(random.integers(0, 3))])
        small = np.asarray(reduced)
        return (small.astype(np.float32) - 128) / 128, (large - network.stretched(small, scale)) / 128

    def _crop(self, side: int) -> Pixels:
        random = self._random
        crops: list[Pixels] = []
        for _ in range(self._crops):
            whole = self._images[int(random.integers(0, len(self._images)))]
            top, left = (int(random.integers(0, whole.shape[axis] - side + 1)) for axis in (0, 1))
            crops.append(whole[top : top + side, left : left + side])
        return max(crops, key=_detail)


def _detail(crop: Pixels) -> float:
    return float(cv2.Laplacian(crop[..., 1], cv2.CV_32F).std())


def _planes(patches: Sequence[Any]) -> torch.Tensor:
    return torch.from_numpy(np.stack(patches).transpose(0, 3, 1, 2).astype(np.float32).copy())


class RoundedConv(nn.Conv2d):
    """A 3 x 3 convolution whose weights are integers times a power of two for each output."""

    def integers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the integer weights and the exponent of each output."""
        largest = self.weight.detach().abs().amax((1, 2, 3)).clamp(min=1e-6)
        exponents = torch.floor(torch.log2(127 / largest)).clamp(0, 12)
        return torch.round(self.weight * self._scale(exponents)).clamp(-127, 127), exponents

    @staticmethod
    def _scale(exponents: torch.Tensor) -> torch.Tensor:
        return torch.exp2(exponents)[:, None, None, None]

    def forward(self, values: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its name
        """Return the convolution with rounded weights; gradients pass through the rounding."""
        integers, exponents = self.integers()
        rounded = (integers / self._scale(exponents)).detach()
        return functional.conv2d(values, self.weight + (rounded - self.weight).detach(), self.bias, padding=1)


class Trainee(nn.Module):
    """The network of `network.py`, with gradients."""

    def __init__(self) -> None:
        super().__init__()
        wide = network.CHANNELS
        self.first = RoundedConv(3, wide, 3)
        self.body = nn.ModuleList(RoundedConv(wide, wide, 3) for _ in range(2 * network.BLOCKS))
        self.heads = nn.ModuleDict({str(scale): RoundedConv(wide, 3 * scale**2, 3) for scale in (2, 4)})
        for scale in (2, 4):
            nn.init.normal_(self.layers()[f"x{scale}"].weight, std=1e-3)

    def forward(self, small: torch.Tensor, scale: int) -> torch.Tensor:
        """Return the difference to add to the bicubic enlargement."""
        values = self._steps(self.first(small))
        for number in range(0, len(self.body), 2):
            inner = self._steps(self.body[number](values))
            values = self._steps(values + self.body[number + 1](inner))
        return functional.pixel_shuffle(self.heads[str(scale)](values), scale)

    def layers(self) -> dict[str, Any]:
        """Return the layers by their names in the file."""
        body = {f"body{number}": layer for number, layer in enumerate(self.body)}
        heads = {f"x{scale}": layer for scale, layer in self.heads.items()}
        return {"first": self.first, **body, **heads}

    @staticmethod
    def _steps(values: torch.Tensor) -> torch.Tensor:
        values = values.clamp(0, network.MAX_LEVEL / network.STEPS)
        return values + (torch.round(values * network.STEPS) / network.STEPS - values).detach()


def train(images: Sequence[Pixels], path: Path, first: int) -> None:
    """Train the phases from `first` on; each later phase continues with the network in `path`."""
    torch.manual_seed(_SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    cv2.setNumThreads(1)
    trainee: Any = Trainee()
    trainee = trainee.to(memory_format=torch.channels_last)
    for number, (steps, rate, crops) in enumerate(PHASES):
        if number < first:
            continue
        if number:
            read(trainee, path)
        _train_phase(trainee, Patches(images, _SEED + number, crops), steps, rate)
        write(trainee, path)


def _train_phase(trainee: Trainee, patches: Patches, steps: int, rate: float) -> None:
    optimizer = torch.optim.Adam(trainee.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, steps, pct_start=0.04, final_div_factor=400
    )
    total, began = 0.0, time.process_time()
    for step in range(1, steps + 1):
        scale = 2 if step % 3 == 0 else 4
        small, lacking = patches.batch(scale)
        predicted = trainee(small.contiguous(memory_format=torch.channels_last), scale)
        rim = RIM * scale
        error = (predicted - lacking)[..., rim:-rim, rim:-rim]
        loss = torch.sqrt(error**2 + 1e-6).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trainee.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % 100 == 0:
            print(f"{step}  loss {total:.3f}  {time.process_time() - began:.0f} s", flush=True)
            total = 0.0


def write(trainee: Trainee, path: Path) -> None:
    """Write the integers of the network; sums that float32 cannot represent exactly are an error."""
    arrays: dict[str, Any] = {}
    for name, layer in trainee.layers().items():
        weights, exponents = (values.detach().numpy() for values in layer.integers())
        bias = np.rint(layer.bias.detach().numpy() * np.exp2(exponents) * _steps_before(name))
        most = 128 if name == "first" else network.MAX_LEVEL
        sums = np.abs(weights).sum((1, 2, 3)) * most + np.abs(bias)
        if not sums.max() < 2**24:
            raise SystemExit(f"{name}: a sum of {sums.max():.0f} exceeds 2^24; train with smaller weights")
        arrays[f"{name}.weights"] = weights.astype(np.int8)
        arrays[f"{name}.bias"] = bias.astype(np.int32)
        arrays[f"{name}.exponents"] = exponents.astype(np.int8)
    np.savez(path, **arrays)


def read(trainee: Trainee, path: Path) -> None:
    """Set the weights to the integers of a file."""
    with np.load(path) as file, torch.no_grad():
        for name, layer in trainee.layers().items():
            weights, bias, exponents = (file[f"{name}.{part}"] for part in ("weights", "bias", "exponents"))
            scale = np.exp2(exponents.astype(np.float32))
            layer.weight.copy_(torch.from_numpy(weights / scale[:, None, None, None]))
            layer.bias.copy_(torch.from_numpy(bias / scale / _steps_before(name)))


def _steps_before(name: str) -> int:
    return 128 if name == "first" else network.STEPS


def main() -> None:
    """Train the network and write it."""
    parser = argparse.ArgumentParser(prog="tools.train_upscaler", description="Train the upscaling network.")
    parser.add_argument("folder", type=Path, help="folder of the unpacked packages")
    parser.add_argument("--first", type=int, default=0, help="phase to start with; 1 continues the file")
    parser.add_argument("--out", type=Path, default=OUT, help="file to write")
    options = parser.parse_args()
    train(photographs(options.folder), options.out, options.first)
    data = options.out.read_bytes()
    print(f"{options.out.name}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
