DROP INDEX account_link_requests;
ALTER TABLE account DROP COLUMN link_requested_at;
