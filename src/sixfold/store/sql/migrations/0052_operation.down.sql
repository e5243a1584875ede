DROP INDEX operator_action_target;
DROP TABLE operator_action;
ALTER TABLE account DROP COLUMN suspended_at;
