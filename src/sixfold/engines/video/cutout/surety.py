"""How good a film's mask is likely to be, from what can be seen without the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.matting import certainty
from sixfold.engines.image.matting.certainty import Cut
from sixfold.engines.video.cutout.motion import Moving

Array = NDArray[Any]


def signs(found: Cut, moving: Moving, carried: Array | None) -> Array:
    """What speaks for and against a mask; each about 0 to 1."""
    agrees = 0.5 if carried is None else _overlap(found.mask, carried > 0.5)
    moves = _overlap(found.mask, moving.belief > 0.5) if moving.weight else 0.0
    return np.array([*certainty.signs(found), agrees, moving.weight, moving.weight * moves])


def _overlap(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float((one & other).sum() / max(1, (one | other).sum()))


_WEIGHTS = np.array([-1.64, 1.5, -0.45, 1.28, 0.65, 1.39, 0, 0, 0])


def of(found: Cut, moving: Moving, carried: Array | None) -> float:
    """0 to 1: the overlap with the true subject that is to be expected."""
    seen = signs(found, moving, carried)
    if not seen[0]:
        return 0.0
    return float(1 / (1 + np.exp(-seen @ _WEIGHTS)))
