ALTER TABLE relay_call DROP COLUMN shared;
