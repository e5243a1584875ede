-- Adds the calculation of each charge.
-- The lines that add up to a charge, as a JSON object: what was counted, and the rate of each unit. Rows from before
-- have none. The journal has its own, as it outlasts the log of calls.
ALTER TABLE relay_call ADD COLUMN charge TEXT COLLATE "C";
ALTER TABLE prediction ADD COLUMN charge TEXT COLLATE "C";
ALTER TABLE transfer ADD COLUMN charge TEXT COLLATE "C";
