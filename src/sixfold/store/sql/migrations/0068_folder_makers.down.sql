ALTER TABLE shared_folder DROP COLUMN member_id;
ALTER TABLE shared_folder DROP COLUMN credential_id;
