"""Style transfer without weights: painting, printing and grading from one analysis of the source."""
