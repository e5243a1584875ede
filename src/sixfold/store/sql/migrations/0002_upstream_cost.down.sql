ALTER TABLE prediction DROP COLUMN upstream_cost;
