"""`guardrail`, `logging` and `alert`: mask, check and log gateway calls, and report their cost."""
