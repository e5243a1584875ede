-- Adds what the provider of a call charged the operator, in micro-dollars; NULL if it does not state it.
ALTER TABLE relay_call ADD COLUMN upstream_cost INTEGER CHECK (upstream_cost >= 0);
