"""HTTP for every face: dispatch, keys, limits, origins, logs, metrics. It knows no area."""
