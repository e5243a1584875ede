ALTER TABLE transfer DROP COLUMN charge;
ALTER TABLE prediction DROP COLUMN charge;
ALTER TABLE relay_call DROP COLUMN charge;
