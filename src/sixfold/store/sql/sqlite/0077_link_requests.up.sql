-- Adds the time at which a user asked the operator for a new sign-in link.
ALTER TABLE account ADD COLUMN link_requested_at INTEGER;
CREATE INDEX account_link_requests ON account (link_requested_at) WHERE link_requested_at IS NOT NULL;
