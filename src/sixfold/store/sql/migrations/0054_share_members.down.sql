ALTER TABLE share DROP COLUMN member_id;
