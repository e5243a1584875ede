-- What another service took from the operator for a prediction, beside the price that its account paid.
ALTER TABLE prediction ADD COLUMN upstream_cost INTEGER CHECK (upstream_cost >= 0);
