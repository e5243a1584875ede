"""`/api/operator`: accounts, configuration, weights and statistics, for operators."""
