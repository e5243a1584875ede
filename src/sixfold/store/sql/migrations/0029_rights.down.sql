DROP INDEX oauth_grant_by_key;
DROP INDEX account_unsealed;
ALTER TABLE account DROP COLUMN webhook_sealed;
ALTER TABLE prediction DROP COLUMN key_id;
ALTER TABLE api_key DROP COLUMN origin;
ALTER TABLE api_key DROP COLUMN rights;
