ALTER TABLE shared_folder DROP COLUMN key_id;
ALTER TABLE share DROP COLUMN key_id;
