-- Adds the key with which a key or an invitation was created, with which it ends, and who created the key of a team.
ALTER TABLE api_key ADD COLUMN parent_id TEXT;
ALTER TABLE api_key ADD COLUMN rates_id TEXT;
ALTER TABLE api_key ADD COLUMN maker_id TEXT;
CREATE INDEX api_key_parent ON api_key (parent_id) WHERE parent_id IS NOT NULL AND revoked_at IS NULL;
ALTER TABLE invitation ADD COLUMN key_id TEXT;
