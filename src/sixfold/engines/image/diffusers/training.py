"""The engine: a LoRA learnt from images, on the weights that the image engine draws with.

A pipeline with a UNet (Stable Diffusion, SDXL) is taught: its attention gets an adapter, and with the option
`text_encoder` that of what reads its words too; everything else stays as it is. What it learns is measured
on the same noise from the beginning to the end, so the losses that a run tells of can be compared.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from diffusers.training_utils import cast_training_params
from diffusers.utils.state_dict_utils import convert_state_dict_to_diffusers
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.engines.image import decode
from sixfold.engines.image.diffusers import loading, options, task_parser
from sixfold.engines.image.diffusers.loading import LoadedPipeline

_ADAPTER = "learnt"
_ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")
_READING = ("q_proj", "k_proj", "v_proj", "out_proj")  # the attention of CLIP
_READERS = ("text_encoder", "text_encoder_2")
_STEPS, _STEPS_OF_A_PICTURE, _MOST_STEPS = 200, 20, 1200
_LOOKS = 4  # at what was learnt, beside the first
_PROBES = 8  # noises of one look
_ROWS = 2  # images of one step
_UNNAMED = 0.5  # of the steps: without the name, so that any prompt is drawn in what was learnt
_MAX_NORM = 1.0
_LOADED, _READ, _LEARNT = 0.02, 0.08, 0.97
_TOO_LARGE = "These weights are too large to be taught in this machine's memory."


@dataclass(frozen=True, slots=True)
class _TrainingData:
    """What is learnt from: latents, and how each of two captions conditions the network, as of now."""

    latents: torch.Tensor
    named: Callable[[], dict[str, Any]]
    unnamed: Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _TrainingBatch:
    """Images with noise at some times, and the noise itself."""

    latents: torch.Tensor
    noise: torch.Tensor
    times: torch.Tensor
    words: Callable[[], dict[str, Any]]


class TrainingEngine:
    """Learns an adapter; `steps` (0: by the number of images), `rank`, `rate` and `text_encoder` (whether
    what reads the words learns too) are the operator's, and all other options are the image engine's.
    `limit_seconds` is kept by the server."""

    name = "weights-training"
    version = "1"

    def __init__(
        self,
        *,
        steps: int = 0,
        rank: int = 8,
        rate: float = 1e-4,
        text_encoder: bool = False,
        limit_seconds: float = 0,
        **given: Any,
    ) -> None:
        del limit_seconds
        self._options = options.parse(given)
        self._shelf = loading.PipelineCache(self._options)
        self._steps, self._rank, self._rate, self._reads = steps, rank, rate, bool(text_encoder)

    def run(self, task: Task, context: Context) -> Result:
        """Learn from `images`: `name` is what they show, `base` the service whose weights are taught."""
        pictures = [path for name, path in sorted(task.files.items()) if name.startswith("images")]
        if not pictures:
            raise UnusableInput("images must hold at least one picture.")
        loaded = self._shelf.get(self._options.source_of(str(task.inputs["base"])))
        context.progress(_LOADED)
        try:
            return self._learnt(loaded, task, pictures, context)
        except (torch.OutOfMemoryError, MemoryError):
            raise EngineError(_TOO_LARGE) from None
        finally:
            self._shelf.drop(loaded)  # the memory is the painter's again

    def _learnt(
        self, loaded: LoadedPipeline, task: Task, pictures: Sequence[Path], context: Context
    ) -> Result:
        unet = getattr(loaded.pipeline, "unet", None)
        if unet is None:
            what = type(loaded.pipeline).__name__
            raise EngineError(f"{what} cannot be taught here: weights of Stable Diffusion or SDXL can.")
        name, seed = str(task.inputs["name"]), int(task.inputs.get("seed") or 0)
        steps = self._steps or min(_MOST_STEPS, _STEPS + _STEPS_OF_A_PICTURE * len(pictures))
        context.log(f"{loaded.source.name} on {loaded.where}: {steps} steps on {len(pictures)} pictures")
        torch.manual_seed(seed)  # the adapter's first numbers
        pupils = _pupils(loaded.pipeline, reads=self._reads)
        with _taught(pupils, self._rank):
            lesson = _lesson(loaded, pictures, name, context, reads=self._reads)
            losses = _learn(
                loaded, lesson, _TrainingRun(steps, self._rate, seed, tuple(pupils.values())), context
            )
            layers = {
                f"{part}_lora_layers": convert_state_dict_to_diffusers(
                    get_peft_model_state_dict(pupil, adapter_name=_ADAPTER)
                )
                for part, pupil in pupils.items()
            }
        file = context.scratch / f"{name}.safetensors"
        type(loaded.pipeline).save_lora_weights(context.scratch, weight_name=file.name, **layers)
        context.progress(1.0)
        data = {"name": name, "base": loaded.source.name, "steps": steps, "loss": losses}
        info = {"name": "adapter"}
        return Result((Artifact("application/x-safetensors", info=info, path=file),), data, "full")


@dataclass(frozen=True, slots=True)
class _TrainingRun:
    steps: int
    rate: float
    seed: int
    pupils: tuple[Any, ...]


def _pupils(pipeline: Any, *, reads: bool) -> dict[str, Any]:
    """The networks that learn, by their names in the pipeline."""
    readers = {part: getattr(pipeline, part, None) for part in _READERS if reads}
    return {"unet": pipeline.unet} | {part: each for part, each in readers.items() if each is not None}


@contextmanager
def _taught(pupils: Mapping[str, Any], rank: int) -> Iterator[None]:
    """The networks with adapters on their attention that can learn."""
    for part, pupil in pupils.items():
        modules: list[str] = [*(_ATTENTION if part == "unet" else _READING)]
        pupil.requires_grad_(False)
        pupil.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=modules), _ADAPTER)
        cast_training_params(pupil, dtype=torch.float32)
    unet = pupils["unet"]
    if unet.device.type != "cpu":
        unet.enable_gradient_checkpointing()
    unet.train()  # what reads has no other way to learn, and would leave things out by chance
    try:
        yield
    finally:
        unet.eval()


@torch.no_grad()
def _lesson(
    loaded: LoadedPipeline, pictures: Sequence[Path], name: str, context: Context, *, reads: bool
) -> _TrainingData:
    """What is learnt from; the words are read once, or each time anew by what learns to read them."""
    pipeline, (width, height) = loaded.pipeline, _size(loaded)
    latents: list[torch.Tensor] = []
    dtype = torch.float32 if getattr(pipeline.vae.config, "force_upcast", False) else pipeline.vae.dtype
    pipeline.vae.to(dtype)
    for number, path in enumerate(pictures):
        rgb = task_parser.fitted(decode.decode(path, target=(width, height)).rgb, (width, height))
        pixels = torch.from_numpy(rgb.copy()).movedim(-1, 0)[None].to(loaded.where.torch, dtype) / 127.5 - 1
        found = pipeline.vae.encode(pixels).latent_dist.mode()
        latents.append((found * pipeline.vae.config.scaling_factor).to(pipeline.unet.dtype))
        context.progress(_LOADED + (_READ - _LOADED) * (number + 1) / len(pictures))
    named, unnamed = (partial(_words, loaded, text, (height, width)) for text in (f"a picture of {name}", ""))
    if not reads:
        first, second = named(), unnamed()
        named, unnamed = (lambda: first), (lambda: second)
    return _TrainingData(torch.cat(latents), named, unnamed)


def _size(loaded: LoadedPipeline) -> tuple[int, int]:
    return loaded.profile.side_in(loaded.profile.native, loaded.profile.native)


def _words(loaded: LoadedPipeline, text: str, size: tuple[int, int]) -> dict[str, Any]:
    """How a caption conditions the network: what its own pipeline makes of it."""
    pipeline, where = loaded.pipeline, loaded.where.torch
    found = pipeline.encode_prompt(
        prompt=text, device=where, num_images_per_prompt=1, do_classifier_free_guidance=False
    )
    words: dict[str, Any] = {"encoder_hidden_states": found[0]}
    if len(found) > 2:  # SDXL is told the whole of the text and the image's size, too
        sizes = torch.tensor([[*size, 0, 0, *size]], device=where, dtype=found[0].dtype)
        words["added_cond_kwargs"] = {"text_embeds": found[2], "time_ids": sizes}
    return words


def _learn(
    loaded: LoadedPipeline, lesson: _TrainingData, course: _TrainingRun, context: Context
) -> list[float]:
    """Teach it; the losses of each look at what was learnt, the first before anything was."""
    unet = loaded.pipeline.unet
    scheduler = DDPMScheduler.from_config(loaded.pipeline.scheduler.config)
    probe = _probe(lesson, scheduler, course.seed)
    numbers = torch.Generator("cpu").manual_seed(course.seed + 1)
    weights = [weight for pupil in course.pupils for weight in pupil.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=course.rate)
    looks = {round(course.steps * part / _LOOKS) for part in range(1, _LOOKS + 1)}
    losses = [_look(unet, scheduler, probe)]
    for step in range(1, course.steps + 1):
        loss = _loss(unet, scheduler, _batch(lesson, scheduler, numbers))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, _MAX_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step in looks:
            losses.append(_look(unet, scheduler, probe))
            context.log(f"step {step} of {course.steps}: loss {losses[-1]:.4f}, {losses[0]:.4f} at first")
        context.progress(_READ + (_LEARNT - _READ) * step / course.steps)
    if not all(torch.isfinite(weight).all() for weight in weights):
        raise EngineError("What was learnt broke into no numbers: choose a smaller rate.")
    return losses


def _batch(lesson: _TrainingData, scheduler: Any, numbers: torch.Generator) -> _TrainingBatch:
    count = len(lesson.latents)
    which = torch.randint(count, (min(_ROWS, count),), generator=numbers)
    latents = lesson.latents[which.to(lesson.latents.device)]
    times = torch.randint(int(scheduler.config.num_train_timesteps), (len(which),), generator=numbers)
    unnamed = float(torch.rand((), generator=numbers)) < _UNNAMED
    return _noisy(latents, times, numbers, lesson.unnamed if unnamed else lesson.named)


def _probe(lesson: _TrainingData, scheduler: Any, seed: int) -> list[_TrainingBatch]:
    """Images by turns with times spread from little noise to much, always the same."""
    numbers = torch.Generator("cpu").manual_seed(seed)
    last = int(scheduler.config.num_train_timesteps)
    times = [torch.tensor([round(last * (index + 0.5) / _PROBES)]) for index in range(_PROBES)]
    latents = [lesson.latents[index % len(lesson.latents)][None] for index in range(_PROBES)]
    return [_noisy(one, time, numbers, lesson.named) for one, time in zip(latents, times, strict=True)]


def _noisy(
    latents: torch.Tensor,
    times: torch.Tensor,
    numbers: torch.Generator,
    words: Callable[[], dict[str, Any]],
) -> _TrainingBatch:
    noise = torch.randn(latents.shape, generator=numbers).to(latents)  # drawn alike for every device
    return _TrainingBatch(latents, noise, times.to(latents.device), words)


def _loss(unet: Any, scheduler: Any, batch: _TrainingBatch) -> torch.Tensor:
    """How far the network is from what the scheduler wants of it."""
    noisy = scheduler.add_noise(batch.latents, batch.noise, batch.times)
    rows = len(batch.latents)
    words = {name: _repeated(value, rows) for name, value in batch.words().items()}
    said = unet(noisy, batch.times, **words).sample
    kind = scheduler.config.prediction_type
    wanted = {
        "epsilon": lambda: batch.noise,
        "sample": lambda: batch.latents,
        "v_prediction": lambda: scheduler.get_velocity(batch.latents, batch.noise, batch.times),
    }[kind]()
    return torch.nn.functional.mse_loss(said.float(), wanted.float())


def _repeated(value: Any, rows: int) -> Any:
    if isinstance(value, dict):
        return {name: _repeated(each, rows) for name, each in value.items()}
    return value.expand(rows, *value.shape[1:])


@torch.no_grad()
def _look(unet: Any, scheduler: Any, probe: Sequence[_TrainingBatch]) -> float:
    """The mean loss on the probe."""
    return round(float(torch.stack([_loss(unet, scheduler, batch) for batch in probe]).mean()), 6)
