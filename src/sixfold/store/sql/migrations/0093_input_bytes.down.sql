DROP INDEX prediction_input_bytes;
ALTER TABLE prediction DROP COLUMN input_bytes;
