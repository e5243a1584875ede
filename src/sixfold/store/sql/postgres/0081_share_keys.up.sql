-- Adds the key that created a share or shared a folder, which end with it.
ALTER TABLE share ADD COLUMN key_id TEXT COLLATE "C";
ALTER TABLE shared_folder ADD COLUMN key_id TEXT COLLATE "C";
