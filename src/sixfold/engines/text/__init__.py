"""Engines that read and write text."""
