"""Benchmarks: each module measures one area and prints a table with calibration rows."""
