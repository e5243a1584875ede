ALTER TABLE account DROP COLUMN closed_by_operator;
