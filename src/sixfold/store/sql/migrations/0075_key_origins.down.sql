ALTER TABLE invitation DROP COLUMN key_id;
DROP INDEX api_key_parent;
ALTER TABLE api_key DROP COLUMN creator_id;
ALTER TABLE api_key DROP COLUMN rates_id;
ALTER TABLE api_key DROP COLUMN parent_id;
