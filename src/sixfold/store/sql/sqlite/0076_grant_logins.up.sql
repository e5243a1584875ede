-- Adds the login session in which the user consented to an OAuth grant, so that the grant ends when it is revoked.
ALTER TABLE oauth_grant ADD COLUMN login_id TEXT;
CREATE INDEX oauth_grant_login ON oauth_grant (login_id) WHERE login_id IS NOT NULL;
