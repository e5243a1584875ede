"""Runs other people's programs against a Sixfold server, as the documentation shows them."""
