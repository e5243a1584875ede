"""Clients of payment processors and token chains."""
