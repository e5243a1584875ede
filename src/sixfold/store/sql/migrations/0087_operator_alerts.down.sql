ALTER TABLE cost_alert DROP COLUMN by_operator;
