"""Runs of third-party programs with a Sixfold server, as in the documentation."""
