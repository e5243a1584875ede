-- Without the columns, everyone with the link could open these shares.
DELETE FROM share WHERE grantee <> '' OR team_id <> '';
DROP INDEX share_team;
DROP INDEX share_grantee;
ALTER TABLE share DROP COLUMN team_id;
ALTER TABLE share DROP COLUMN grantee;
