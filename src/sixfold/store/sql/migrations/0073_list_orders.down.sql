DROP INDEX api_key_live;
DROP INDEX api_key_account;
CREATE INDEX api_key_account ON api_key (account_id);
DROP INDEX vector_store_file_account;
CREATE INDEX vector_store_file_account ON vector_store_file (account_id);
DROP INDEX vector_store_file_order;
