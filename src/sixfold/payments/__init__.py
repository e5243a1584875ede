"""Money from outside: what payment processors and chains say, in their own protocols."""
