ALTER TABLE memory_change DROP COLUMN snapshots;
