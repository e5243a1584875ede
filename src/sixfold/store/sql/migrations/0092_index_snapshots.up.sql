-- Adds the tokens of the snapshots of search indexes, separated by spaces; servers store the files.
ALTER TABLE memory_change ADD COLUMN snapshots TEXT NOT NULL DEFAULT '';
