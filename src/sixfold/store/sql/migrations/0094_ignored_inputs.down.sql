ALTER TABLE prediction DROP COLUMN ignored_inputs;
