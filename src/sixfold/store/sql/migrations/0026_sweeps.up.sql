-- Adds indexes for cleanups.
-- Indexes for the statements that sweep: each finds the rows that are due without reading the others.
CREATE INDEX signin_expiry ON signin (expires_at);
CREATE INDEX ceremony_expiry ON ceremony (expires_at);
CREATE INDEX oauth_client_age ON oauth_client (created_at);
CREATE INDEX account_operator ON account (created_at, id) WHERE kind = 'operator';
CREATE INDEX oauth_grant_account ON oauth_grant (account_id);
CREATE INDEX oauth_grant_expiry ON oauth_grant (expires_at);
CREATE INDEX media_expiry ON media (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX webhook_ended ON webhook_outbox (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX relay_once_age ON relay_once (created_at);
CREATE INDEX memory_index_embedded ON memory_index (embedded) WHERE embedded <> '';

-- A name of a file in graphs goes with its file; until now a sweep compared all of them.
DELETE FROM graph_file WHERE NOT EXISTS (SELECT 1 FROM media m WHERE m.name = graph_file.media);
CREATE INDEX graph_file_media ON graph_file (media);
