-- Indexes the files of vector stores and the keys of accounts in the order of their lists.
-- One page is read at a time, and files are counted without their attributes.
CREATE INDEX vector_store_file_order ON vector_store_file (store_id, created_at, file_id, status, batch_id, bytes);
DROP INDEX vector_store_file_account;
CREATE INDEX vector_store_file_account ON vector_store_file (account_id, bytes);
DROP INDEX api_key_account;
CREATE INDEX api_key_account ON api_key (account_id, created_at, id);
CREATE INDEX api_key_live ON api_key (account_id, created_at, id)
    WHERE revoked_at IS NULL AND grant_id IS NULL AND hint <> '';
