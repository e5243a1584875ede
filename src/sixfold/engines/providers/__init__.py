"""Engines that wait for another machine: our words on one side, its own on the other."""
