DROP TABLE credential_folder;
DROP INDEX api_key_grant;
DROP INDEX prediction_credential;
ALTER TABLE graph_file DROP COLUMN credential_id;
ALTER TABLE relay_response DROP COLUMN credential_id;
ALTER TABLE media DROP COLUMN credential_id;
ALTER TABLE session DROP COLUMN credential_id;
ALTER TABLE prediction DROP COLUMN credential_id;
