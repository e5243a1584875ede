-- Adds the account or team that alone may open a share; both are "" for everyone with the link.
-- `grantee` is an e-mail address or the name of an organization.
ALTER TABLE share ADD COLUMN grantee TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE share ADD COLUMN team_id TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX share_grantee ON share (grantee) WHERE grantee <> '';
CREATE INDEX share_team ON share (team_id) WHERE team_id <> '';
