"""Speed, measured: one script per figure, each prints a table beside calibration rows of the same run."""
