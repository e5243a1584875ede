"""An engine that trains a LoRA on images, for the weights that the image engine uses.

Supports pipelines with a UNet (Stable Diffusion, SDXL). Adapters are added to the attention layers of the
UNet and, with the option `text_encoder`, of the text encoders; all other weights are frozen. All losses of a
run are measured on the same noise and are therefore comparable.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
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
# Attention layers of CLIP.
_CLIP_ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")
_TEXT_ENCODERS = ("text_encoder", "text_encoder_2")
_STEPS, _STEPS_PER_IMAGE, _MAX_STEPS = 200, 20, 1200
# Number of evaluations after the first one.
_EVALUATIONS = 4
# Number of noise samples in one evaluation.
_PROBES = 8
# Images in one step.
_ROWS = 2
# Share of steps without the name in the caption, so that the LoRA affects every prompt.
_UNNAMED = 0.5
_MAX_NORM = 1.0
_LOADED, _ENCODED, _TRAINED = 0.02, 0.08, 0.97
_TOO_LARGE = "These weights are too large to train in this machine's memory."


class _TrainingData(msgspec.Struct, frozen=True):
    """Latents of the training images, and conditioning with and without the name in the caption."""

    latents: torch.Tensor
    named: Callable[[], dict[str, Any]]
    unnamed: Callable[[], dict[str, Any]]


class _TrainingBatch(msgspec.Struct, frozen=True):
    """Latents, the noise to add, and the timesteps."""

    latents: torch.Tensor
    noise: torch.Tensor
    times: torch.Tensor
    conditioning: Callable[[], dict[str, Any]]


class TrainingEngine:
    """Trains LoRA adapters.

    `steps` (0: from the number of images), `rank`, `rate` and `text_encoder` (whether the text encoders are
    trained too) are set by the operator; all other options are those of the image engine. The server enforces
    `limit_seconds`.
    """

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
        **settings: Any,
    ) -> None:
        del limit_seconds
        self._options = options.parse(settings)
        self._cache = loading.PipelineCache(self._options)
        self._steps, self._rank, self._rate, self._train_text = steps, rank, rate, bool(text_encoder)

    def run(self, task: Task, context: Context) -> Result:
        """Train on `images`: `name` is their subject, `base` the model whose weights are adapted."""
        images = [path for name, path in sorted(task.files.items()) if name.startswith("images")]
        if not images:
            raise UnusableInput("images must contain at least one image.")
        loaded = self._cache.get(self._options.source_of(str(task.inputs["base"])))
        context.progress(_LOADED)
        try:
            return self._train(loaded, task, images, context)
        except (torch.OutOfMemoryError, MemoryError):
            raise EngineError(_TOO_LARGE) from None
        finally:
            # The image engine needs the memory.
            self._cache.drop(loaded)

    def _train(self, loaded: LoadedPipeline, task: Task, images: Sequence[Path], context: Context) -> Result:
        unet = getattr(loaded.pipeline, "unet", None)
        if unet is None:
            kind = type(loaded.pipeline).__name__
            raise EngineError(f"{kind} cannot be trained: use weights of Stable Diffusion or SDXL.")
        name, seed = str(task.inputs["name"]), int(task.inputs.get("seed") or 0)
        steps = self._steps or min(_MAX_STEPS, _STEPS + _STEPS_PER_IMAGE * len(images))
        context.log(f"{loaded.source.name} on {loaded.where}: {steps} steps on {len(images)} images")
        # Seeds the adapter's initial weights.
        torch.manual_seed(seed)
        networks = _trainable(loaded.pipeline, train_text=self._train_text)
        with _with_adapters(networks, self._rank):
            data_set = _training_data(loaded, images, name, context, train_text=self._train_text)
            losses = _train(
                loaded, data_set, _TrainingRun(steps, self._rate, seed, tuple(networks.values())), context
            )
            layers = {
                f"{part}_lora_layers": convert_state_dict_to_diffusers(
                    get_peft_model_state_dict(network, adapter_name=_ADAPTER)
                )
                for part, network in networks.items()
            }
        file = context.scratch / f"{name}.safetensors"
        type(loaded.pipeline).save_lora_weights(context.scratch, weight_name=file.name, **layers)
        context.progress(1.0)
        data = {"name": name, "base": loaded.source.name, "steps": steps, "loss": losses}
        info = {"name": "adapter"}
        return Result((Artifact("application/x-safetensors", info=info, path=file),), data, "full")


class _TrainingRun(msgspec.Struct, frozen=True):
    steps: int
    rate: float
    seed: int
    networks: tuple[Any, ...]


def _trainable(pipeline: Any, *, train_text: bool) -> dict[str, Any]:
    """Return the networks to train, by their names in the pipeline."""
    encoders = {part: getattr(pipeline, part, None) for part in _TEXT_ENCODERS if train_text}
    return {"unet": pipeline.unet} | {part: each for part, each in encoders.items() if each is not None}


@contextmanager
def _with_adapters(networks: Mapping[str, Any], rank: int) -> Iterator[None]:
    """Add trainable adapters to the attention layers while the context is active."""
    for part, network in networks.items():
        modules: list[str] = [*(_ATTENTION if part == "unet" else _CLIP_ATTENTION)]
        network.requires_grad_(False)
        network.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=modules), _ADAPTER)
        cast_training_params(network, dtype=torch.float32)
    unet = networks["unet"]
    if unet.device.type != "cpu":
        unet.enable_gradient_checkpointing()
    # In evaluation mode, the text encoders train without dropout.
    unet.train()
    try:
        yield
    finally:
        unet.eval()


@torch.no_grad()
def _training_data(
    loaded: LoadedPipeline, images: Sequence[Path], name: str, context: Context, *, train_text: bool
) -> _TrainingData:
    """Return the training data; captions are encoded once, or per batch if text encoders are trained."""
    pipeline, (width, height) = loaded.pipeline, _size(loaded)
    latents: list[torch.Tensor] = []
    dtype = torch.float32 if getattr(pipeline.vae.config, "force_upcast", False) else pipeline.vae.dtype
    pipeline.vae.to(dtype)
    for number, path in enumerate(images):
        rgb = task_parser.fit(decode.decode(path, target=(width, height)).rgb, (width, height))
        pixels = torch.from_numpy(rgb.copy()).movedim(-1, 0)[None].to(loaded.where.torch, dtype) / 127.5 - 1
        encoded = pipeline.vae.encode(pixels).latent_dist.mode()
        latents.append((encoded * pipeline.vae.config.scaling_factor).to(pipeline.unet.dtype))
        context.progress(_LOADED + (_ENCODED - _LOADED) * (number + 1) / len(images))
    named, unnamed = (
        partial(_conditioning, loaded, text, (height, width)) for text in (f"a picture of {name}", "")
    )
    if not train_text:
        first, second = named(), unnamed()
        named, unnamed = (lambda: first), (lambda: second)
    return _TrainingData(torch.cat(latents), named, unnamed)


def _size(loaded: LoadedPipeline) -> tuple[int, int]:
    return loaded.profile.side_in(loaded.profile.native, loaded.profile.native)


def _conditioning(loaded: LoadedPipeline, text: str, size: tuple[int, int]) -> dict[str, Any]:
    pipeline, where = loaded.pipeline, loaded.where.torch
    embeddings = pipeline.encode_prompt(
        prompt=text, device=where, num_images_per_prompt=1, do_classifier_free_guidance=False
    )
    arguments: dict[str, Any] = {"encoder_hidden_states": embeddings[0]}
    if len(embeddings) > 2:
        # SDXL also requires the pooled embedding and the image's size.
        sizes = torch.tensor([[*size, 0, 0, *size]], device=where, dtype=embeddings[0].dtype)
        arguments["added_cond_kwargs"] = {"text_embeds": embeddings[2], "time_ids": sizes}
    return arguments


def _train(
    loaded: LoadedPipeline, data_set: _TrainingData, settings: _TrainingRun, context: Context
) -> list[float]:
    """Train the adapters; return the loss before training and at each evaluation."""
    unet = loaded.pipeline.unet
    scheduler = DDPMScheduler.from_config(loaded.pipeline.scheduler.config)
    probe = _probe(data_set, scheduler, settings.seed)
    generator = torch.Generator("cpu").manual_seed(settings.seed + 1)
    weights = [
        weight for network in settings.networks for weight in network.parameters() if weight.requires_grad
    ]
    optimizer = torch.optim.AdamW(weights, lr=settings.rate)
    evaluations = {round(settings.steps * part / _EVALUATIONS) for part in range(1, _EVALUATIONS + 1)}
    losses = [_evaluate(unet, scheduler, probe)]
    for step in range(1, settings.steps + 1):
        loss = _loss(unet, scheduler, _batch(data_set, scheduler, generator))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, _MAX_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step in evaluations:
            losses.append(_evaluate(unet, scheduler, probe))
            context.log(f"step {step} of {settings.steps}: loss {losses[-1]:.4f} (initially {losses[0]:.4f})")
        context.progress(_ENCODED + (_TRAINED - _ENCODED) * step / settings.steps)
    if not all(torch.isfinite(weight).all() for weight in weights):
        raise EngineError("Training diverged to non-finite weights: choose a smaller rate.")
    return losses


def _batch(data_set: _TrainingData, scheduler: Any, generator: torch.Generator) -> _TrainingBatch:
    count = len(data_set.latents)
    which = torch.randint(count, (min(_ROWS, count),), generator=generator)
    latents = data_set.latents[which.to(data_set.latents.device)]
    times = torch.randint(int(scheduler.config.num_train_timesteps), (len(which),), generator=generator)
    unnamed = float(torch.rand((), generator=generator)) < _UNNAMED
    return _noisy(latents, times, generator, data_set.unnamed if unnamed else data_set.named)


def _probe(data_set: _TrainingData, scheduler: Any, seed: int) -> list[_TrainingBatch]:
    """Return fixed batches that cycle through the images, with timesteps spread from little noise to much."""
    generator = torch.Generator("cpu").manual_seed(seed)
    last = int(scheduler.config.num_train_timesteps)
    times = [torch.tensor([round(last * (index + 0.5) / _PROBES)]) for index in range(_PROBES)]
    latents = [data_set.latents[index % len(data_set.latents)][None] for index in range(_PROBES)]
    return [
        _noisy(latent, time, generator, data_set.named) for latent, time in zip(latents, times, strict=True)
    ]


def _noisy(
    latents: torch.Tensor,
    times: torch.Tensor,
    generator: torch.Generator,
    conditioning: Callable[[], dict[str, Any]],
) -> _TrainingBatch:
    # Drawn on the CPU, so that the noise is the same on every device.
    noise = torch.randn(latents.shape, generator=generator).to(latents)
    return _TrainingBatch(latents, noise, times.to(latents.device), conditioning)


def _loss(unet: Any, scheduler: Any, batch: _TrainingBatch) -> torch.Tensor:
    """Return the mean squared error of the network's prediction."""
    noisy = scheduler.add_noise(batch.latents, batch.noise, batch.times)
    rows = len(batch.latents)
    conditioning = {name: _repeat(value, rows) for name, value in batch.conditioning().items()}
    prediction = unet(noisy, batch.times, **conditioning).sample
    kind = scheduler.config.prediction_type
    target = {
        "epsilon": lambda: batch.noise,
        "sample": lambda: batch.latents,
        "v_prediction": lambda: scheduler.get_velocity(batch.latents, batch.noise, batch.times),
    }[kind]()
    return torch.nn.functional.mse_loss(prediction.float(), target.float())


def _repeat(value: Any, rows: int) -> Any:
    if isinstance(value, dict):
        return {name: _repeat(each, rows) for name, each in value.items()}
    return value.expand(rows, *value.shape[1:])


@torch.no_grad()
def _evaluate(unet: Any, scheduler: Any, probe: Sequence[_TrainingBatch]) -> float:
    """Return the mean loss of the batches in `probe`."""
    return round(float(torch.stack([_loss(unet, scheduler, batch) for batch in probe]).mean()), 6)
