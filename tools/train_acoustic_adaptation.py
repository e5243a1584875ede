"""Train `acoustic_adaptation.npz` of the speech engines: means adapted to Sixfold's English voices.

.venv/bin/python -m tools.train_acoustic_adaptation [--sentences N]
    N sentences of each voice; 60 take about two minutes

Sentences of the documentation are synthesized and aligned with their texts, and the means are adapted: first
by linear transforms of five classes of phones (MLLR, Leggetter and Woodland 1995), then each mean by its
frames (MAP, Gauvain and Lee 1994). `python -m bench stt_accuracy` measures the result on other sentences.
"""

from __future__ import annotations

import argparse
import random
import re
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pocketsphinx import Decoder, get_model_path

from bench import stt_accuracy
from sixfold.engines.speech import acoustic_adaptation

Values = NDArray[np.float64]

MODEL = Path(get_model_path()) / "en-us" / "en-us"
WORDS = Path(get_model_path()) / "en-us" / "cmudict-en-us.dict"
OUT = Path(acoustic_adaptation.__file__).with_name("acoustic_adaptation.npz")
SOUNDS = [
    "+NSN+",
    "+SPN+",
    "AA",
    "AE",
    "AH",
    "AO",
    "AW",
    "AY",
    "B",
    "CH",
    "D",
    "DH",
    "EH",
    "ER",
    "EY",
    "F",
    "G",
    "HH",
    "IH",
    "IY",
    "JH",
    "K",
    "L",
    "M",
    "N",
    "NG",
    "OW",
    "OY",
    "P",
    "R",
    "S",
    "SH",
    "SIL",
    "T",
    "TH",
    "UH",
    "UW",
    "V",
    "W",
    "Y",
    "Z",
    "ZH",
]  # in the order of the model
CLASSES = (
    "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW",
    "L M N NG R W Y",
    "B D G P T K",
    "CH DH F HH JH S SH TH V Z ZH",
    "SIL +NSN+ +SPN+",
)
INERTIA = 3.0  # weight of the prior mean, in frames
_BASE = 0.1024  # unit of the logarithms in `sendump`: 1024 × ln 1.0001


@dataclass(frozen=True)
class Segment:
    """Frames of one state (frame × stream × coefficient), with its phone and its mixture."""

    sound: int
    state: int
    frames: Values


def texts(count: int) -> list[str]:
    """Return up to `count` sentences of the documentation whose words are all in the dictionary."""
    known = {line.split(" ", 1)[0] for line in WORDS.read_text("utf-8").splitlines()}
    names: set[str] = set()
    for page in sorted(Path("docs").rglob("*.md")):
        prose = re.sub(r"```.*?```", " ", page.read_text("utf-8"), flags=re.DOTALL)
        for sentence in re.split(r"(?<=[.;:?])\s+|\n\n", prose):
            text = stt_accuracy.words(sentence)
            if not re.search(r"[^A-Za-z\s,.'?;:-]", sentence) and 6 <= len(text) <= 16 and known >= set(text):
                names.add(" ".join(text))
    ordered = sorted(names)
    random.Random(5).shuffle(ordered)  # noqa: S311  # sampling, not security
    return ordered[:count]


def align(sentences: Sequence[str], voices: Sequence[str]) -> Iterator[Segment]:
    """Yield the states of each sentence that can be aligned; the voices take turns."""
    with tempfile.TemporaryDirectory() as folder:
        decoder: Any = Decoder(samprate=16_000, loglevel="FATAL", lm=None, mfclogdir=folder)
        for number, sentence in enumerate(sentences):
            wave = stt_accuracy.synthesize(sentence, voices[number % len(voices)])
            samples = np.rint(wave * 32_767).astype("<i2").tobytes()
            decoder.reinit_feat()
            try:
                decoder.set_align_text(sentence)
                _decode(decoder, samples)
                decoder.set_alignment()
                _decode(decoder, samples)
            except RuntimeError:
                continue  # the alignment did not reach the end of the sentence
            finally:
                logs = sorted(Path(folder).iterdir())
                frames = _frames(logs[0].read_bytes())
                for log in logs:
                    log.unlink()
            states = (
                (phone.name, state) for word in decoder.get_alignment() for phone in word for state in phone
            )
            for sound, state in states:
                part = frames[state.start : state.start + state.duration]
                yield Segment(SOUNDS.index(sound), int(state.name), part)


def _decode(decoder: Any, samples: bytes) -> None:
    decoder.start_utt()
    decoder.process_raw(samples, full_utt=True)
    decoder.end_utt()


def _frames(raw: bytes) -> Values:
    """Return the logged cepstra without their mean, with first and second differences."""
    big = struct.unpack_from(">i", raw)[0] == (len(raw) - 4) // 4
    cepstra = np.frombuffer(raw, ">f4" if big else "<f4", offset=4).reshape(-1, 13).astype(float)
    cepstra = cepstra - cepstra.mean(0)
    last = len(cepstra) - 1

    def at(step: int) -> Values:
        return cepstra[np.clip(np.arange(last + 1) + step, 0, last)]

    return np.stack([cepstra, at(2) - at(-2), (at(3) - at(-1)) - (at(1) - at(-3))], 1)


class Adaptation:
    """Adapts the model's means to segments of other voices."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._variances = acoustic_adaptation.variances(MODEL).astype(float)
        self._norms = 0.5 * np.log(self._variances).sum(-1)
        raw = (MODEL / "sendump").read_bytes()
        states = len(raw) // (3 * 128)
        packed = np.frombuffer(raw, np.uint8, offset=len(raw) - 3 * 128 * states)
        self._weights = -_BASE * packed.reshape(3, 128, states).astype(np.float32)
        self.means = acoustic_adaptation.means(MODEL).astype(float)

    def share(self) -> tuple[Values, Values]:
        """Return the expected number of frames of each density, and their sum."""
        counts, sums = np.zeros(self.means.shape[:3]), np.zeros(self.means.shape)
        for part in self._segments:
            for stream in range(3):
                place, frames = (part.sound, stream), part.frames[:, stream]
                away = ((frames[:, None] - self.means[place]) ** 2 / self._variances[place]).sum(-1)
                score = self._weights[stream, :, part.state] - 0.5 * away - self._norms[place]
                shares = np.exp(score - score.max(1, keepdims=True))
                shares /= shares.sum(1, keepdims=True)
                counts[place] += shares.sum(0)
                sums[place] += shares.T @ frames
        return counts, sums

    def transform(self) -> None:
        """Apply one linear transform to the means of each class of phones and stream (MLLR)."""
        counts, sums = self.share()
        before = self.means.copy()
        for names in CLASSES:
            phones = [SOUNDS.index(name) for name in names.split()]
            for stream in range(3):
                inputs = before[phones, stream].reshape(-1, 13)
                inputs = np.concatenate([np.ones((len(inputs), 1)), inputs], 1)
                frames = counts[phones, stream].reshape(-1)
                for part in range(13):
                    spread = self._variances[phones, stream, :, part].reshape(-1)
                    left = (inputs * (frames / spread)[:, None]).T @ inputs
                    right = inputs.T @ (sums[phones, stream, :, part].reshape(-1) / spread)
                    row = np.linalg.solve(left + 1e-6 * np.trace(left) / 14 * np.eye(14), right)
                    self.means[phones, stream, :, part] = (inputs @ row).reshape(len(phones), 128)

    def adapt_means(self) -> None:
        """Move each mean toward its frames, in proportion to their number (MAP)."""
        prior = self.means
        for _ in range(2):
            counts, sums = self.share()
            self.means = (INERTIA * prior + sums) / (INERTIA + counts)[..., None]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tools.train_acoustic_adaptation", description="Adapt the recognizer to Sixfold's voices."
    )
    parser.add_argument("--sentences", type=int, default=60, help="number of sentences of each voice")
    options = parser.parse_args()
    result = Adaptation(list(align(texts(options.sentences * len(stt_accuracy.VOICES)), stt_accuracy.VOICES)))
    result.transform()
    result.adapt_means()
    np.savez_compressed(OUT, moves=acoustic_adaptation.steps(MODEL, result.means))
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
