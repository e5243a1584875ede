DROP INDEX oauth_grant_login;
ALTER TABLE oauth_grant DROP COLUMN login_id;
