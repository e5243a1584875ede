-- Adds the member of an organization who created a share, so that it ends with the membership.
ALTER TABLE share ADD COLUMN member_id TEXT COLLATE "C";
