-- Adds what a provider charged the operator for a prediction.
ALTER TABLE prediction ADD COLUMN upstream_cost INTEGER CHECK (upstream_cost >= 0);
