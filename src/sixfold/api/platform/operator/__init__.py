"""`/api/operator`: accounts, configuration, weights and figures, for operators."""
