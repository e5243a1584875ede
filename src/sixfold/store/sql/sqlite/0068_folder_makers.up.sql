-- Adds who shared a folder, so that the share ends with a limited key, a program or a membership.
ALTER TABLE shared_folder ADD COLUMN credential_id TEXT NOT NULL DEFAULT '';
ALTER TABLE shared_folder ADD COLUMN member_id TEXT;
