"""Upscaling images two or four times, with and without weights."""
