"""Networks of speech in ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_THREADS = 2
_ERRORS_ONLY = 3


def opened(path: Path) -> Any:
    """A network on a few threads of the processor; raises `RuntimeError` or `ValueError`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _THREADS
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
