DROP INDEX prediction_children;
ALTER TABLE prediction DROP COLUMN hardware;
ALTER TABLE prediction DROP COLUMN rate;
ALTER TABLE prediction DROP COLUMN meter;
