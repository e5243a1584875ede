-- A key has a name, which its creator chooses, and the time of its last use, to about a minute.
ALTER TABLE api_key ADD COLUMN name TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN used_at BIGINT;
