ALTER TABLE hold DROP COLUMN key_id;
DROP TABLE key_spend;
DROP TABLE relay_call;
