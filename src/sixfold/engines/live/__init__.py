"""Engines that serve sessions: worlds to walk through, and bodies that move."""
