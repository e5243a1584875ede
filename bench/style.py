"""Measure seconds per style on an image of 1024 x 1024 on one core, beside a calibration row.

    .venv/bin/python bench/style.py [STYLE …] [--sheet FILE.jpg]

The calibration row applies a Gaussian blur of deviation 8 to the same image ten times: divide by it to
compare machines. `--sheet` also draws every style as a thumbnail into one image.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from bench.reporting import Row
from sixfold.engines.image.styles.canvas import Canvas
from sixfold.engines.image.styles.engine import RECIPES
from sixfold.engines.image.styles.names import NAMED_STYLES

TITLE = "Styles, 1024 x 1024 on one core"
SIDE = 1024
CELL, COLUMNS, CAPTION = 170, 8, 16


def _tree(board: NDArray[np.uint8], x: int, y: int, size: int, rng: np.random.Generator) -> None:
    cv2.line(board, (x, y), (x, y - size), (62, 44, 34), max(3, size // 9), cv2.LINE_AA)
    for _ in range(260):
        dx, dy = rng.normal(0, size * 0.36), rng.normal(0, size * 0.3)
        shade = float(np.clip(0.8 - 0.5 * dy / size - 0.45 * dx / size + rng.normal(0, 0.12), 0.3, 1.5))
        leaf = (np.array([58, 112, 50]) * shade + np.array([24, 14, 0]) * max(shade - 0.9, 0)).tolist()
        cv2.circle(
            board, (round(x + dx), round(y - size * 1.25 + dy)), max(3, size // 13), leaf, -1, cv2.LINE_AA
        )


def _house(board: NDArray[np.uint8]) -> None:
    cv2.fillPoly(
        board, [np.array([[250, 640], [420, 600], [420, 800], [250, 800]])], (238, 226, 203), cv2.LINE_AA
    )
    cv2.fillPoly(
        board, [np.array([[420, 600], [560, 645], [560, 795], [420, 800]])], (178, 160, 150), cv2.LINE_AA
    )
    cv2.fillPoly(board, [np.array([[232, 650], [330, 520], [440, 600]])], (150, 52, 40), cv2.LINE_AA)
    roof = np.array([[330, 520], [486, 560], [580, 655], [430, 606]])
    cv2.fillPoly(board, [roof], (190, 72, 50), cv2.LINE_AA)
    cv2.rectangle(board, (318, 700), (362, 800), (92, 56, 40), -1)
    for x, y in ((272, 680), (380, 668), (450, 680), (508, 690)):
        cv2.rectangle(board, (x, y), (x + 30, y + 44), (252, 214, 120), -1)
        cv2.rectangle(board, (x, y), (x + 30, y + 44), (80, 60, 54), 3, cv2.LINE_AA)
    cv2.rectangle(board, (462, 508), (492, 580), (140, 84, 66), -1)


def painted() -> NDArray[np.uint8]:
    """Paint a house in front of mountains at sunset: large planes, fine detail, every hue."""
    rng = np.random.default_rng(3)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    stops = np.array([[58, 104, 172], [132, 170, 206], [244, 206, 160], [250, 178, 112]], np.float32)
    height = np.clip(rows / 560, 0, 1)
    sky = np.stack([np.interp(height, np.linspace(0, 1, 4), stops[:, c]) for c in range(3)], axis=2)
    cloud = sum(
        cv2.resize(
            rng.standard_normal((n, n // 2), dtype=np.float32), (SIDE, SIDE), interpolation=cv2.INTER_CUBIC
        )
        / n
        for n in (8, 16, 32, 64)
    )
    cover = np.clip(cloud * 5 - 0.15, 0, 1)[..., None] * np.clip(1 - rows / 520, 0, 1)[..., None]
    sky = sky + (np.array([255, 240, 226], np.float32) - sky) * cover * 0.85
    glow = np.exp(-((columns - 760) ** 2 + (rows - 380) ** 2) / 26000)[..., None]
    board = np.clip(sky + glow * np.array([60, 50, 10]), 0, 255).astype(np.uint8)
    cv2.circle(board, (760, 380), 52, (255, 244, 206), -1, cv2.LINE_AA)
    for level, rise, tint, seed in (
        (470, 170, (112, 124, 160), 1),
        (540, 120, (80, 104, 128), 2),
        (610, 60, (70, 112, 84), 5),
    ):
        draw = np.random.default_rng(seed).standard_normal(24).astype(np.float32)
        octaves = [
            cv2.resize(draw[: 6 * k][None], (SIDE, 1), interpolation=cv2.INTER_CUBIC)[0] / k
            for k in (1, 2, 4)
        ]
        ridge = np.sum(octaves, axis=0)
        crest = level - rise * (0.35 + 0.4 * ridge)
        land = rows > crest[None]
        lit = 1 + 0.28 * np.tanh(np.gradient(crest) * -1.2)[None] + 0.05 * cloud
        fade = np.clip((rows - crest[None]) / 260, 0, 1)[..., None]
        stone = np.array(tint, np.float32) * lit[..., None]
        board[land] = np.clip(stone + (np.array([196, 190, 186]) - stone) * fade * 0.35, 0, 255)[land]
    shore = 742 + 60 * np.sin(columns / 210) + 0.00022 * (columns - 300) ** 2
    ground = rows > shore
    blades = cv2.GaussianBlur(rng.standard_normal((SIDE, SIDE), dtype=np.float32), (1, 9), 0, sigmaY=3) * 46
    meadow = (
        np.array([104, 140, 60], np.float32)
        + np.array([44, 16, -8]) * np.sin(columns / 130 + rows / 60)[..., None]
    )
    board[ground] = np.clip(meadow + blades[..., None] - (rows[..., None] - 760) * 0.10, 0, 255)[ground]
    path = np.abs(columns - (345 + (rows - 800) * 0.9)) < 12 + (rows - 800) * 0.22
    board[path & (rows > 798)] = (206, 178, 136)
    _house(board)
    for x, y, size in ((120, 830, 150), (640, 800, 96), (870, 880, 210)):
        _tree(board, x, y, size, rng)
    for _ in range(420):
        x, y = int(rng.uniform(0, SIDE)), int(rng.uniform(870, SIDE))
        petal = ((226, 62, 70), (250, 222, 90), (240, 240, 250), (150, 90, 190))[int(rng.integers(4))]
        cv2.circle(board, (x, y), 3 + (y - 850) // 45, petal, -1, cv2.LINE_AA)
    return board


def calibration(picture: NDArray[np.float32]) -> float:
    """Return the seconds for ten Gaussian blurs of deviation 8."""
    began = time.perf_counter()
    for _ in range(10):
        cv2.GaussianBlur(picture, (0, 0), 8)
    return time.perf_counter() - began


def sheet(tiles: list[tuple[str, NDArray[np.float32]]], file: Path) -> None:
    """Draw the tiles, captioned, into one JPEG."""
    rows = -(-len(tiles) // COLUMNS)
    page = Image.new("RGB", (COLUMNS * (CELL + 6) + 6, rows * (CELL + CAPTION + 6) + 6), (24, 24, 28))
    pen = ImageDraw.Draw(page)
    for index, (name, rgb) in enumerate(tiles):
        x, y = 6 + index % COLUMNS * (CELL + 6), 6 + index // COLUMNS * (CELL + CAPTION + 6)
        small = Image.fromarray(np.rint(np.clip(rgb, 0, 1) * 255).astype(np.uint8))
        page.paste(small.resize((CELL, CELL), Image.Resampling.LANCZOS), (x, y))
        pen.text((x + 2, y + CELL + 2), name, fill=(226, 226, 230))
    page.save(file, quality=74, optimize=True, progressive=True)


def rows() -> list[Row]:
    cv2.setNumThreads(1)
    picture = (painted() / np.float32(255)).astype(np.float32)
    unit = min(calibration(picture) for _ in range(3))
    results = [Row("calibration: ten Gaussian blurs", unit, "s")]
    for name in NAMED_STYLES:
        began = time.perf_counter()
        RECIPES[name](Canvas(picture, 1))
        results.append(Row(name, time.perf_counter() - began, "s"))
    return results


def main() -> None:
    """Time the styles and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("styles", nargs="*", default=[])
    parser.add_argument("--sheet", type=Path)
    request = parser.parse_args()
    cv2.setNumThreads(1)
    picture = (painted() / np.float32(255)).astype(np.float32)
    unit = min(calibration(picture) for _ in range(3))
    print(f"{'style':18s}{'seconds':>9s}{'x blur':>9s}")
    print(f"{'(calibration)':18s}{unit:9.3f}{1.0:9.1f}")
    tiles = [("the source", picture)]
    for name in request.styles or NAMED_STYLES:
        began = time.perf_counter()
        tiles.append((name, RECIPES[name](Canvas(picture, 1))))
        spent = time.perf_counter() - began
        print(f"{name:18s}{spent:9.3f}{spent / unit:9.1f}")
    if request.sheet:
        sheet(tiles, request.sheet)


if __name__ == "__main__":
    main()
