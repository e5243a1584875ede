-- Adds the key that created a key or an invitation, which end with it, and the user who created a key of a team.
ALTER TABLE api_key ADD COLUMN parent_id TEXT;
ALTER TABLE api_key ADD COLUMN rates_id TEXT;
ALTER TABLE api_key ADD COLUMN creator_id TEXT;
CREATE INDEX api_key_parent ON api_key (parent_id) WHERE parent_id IS NOT NULL AND revoked_at IS NULL;
ALTER TABLE invitation ADD COLUMN key_id TEXT;
