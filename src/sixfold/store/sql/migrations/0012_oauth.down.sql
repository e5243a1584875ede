DROP TABLE oauth_grant;
DROP TABLE oauth_client;
