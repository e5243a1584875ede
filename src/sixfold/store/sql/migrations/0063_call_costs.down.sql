ALTER TABLE relay_call DROP COLUMN upstream_cost;
