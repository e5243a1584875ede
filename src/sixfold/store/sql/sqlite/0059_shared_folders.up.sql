-- Adds folders of the memory that are shared with another account or a team.
-- `grantee` is an e-mail address or the name of an organization, "" for a team; `team_id` is "" for an account.
CREATE TABLE shared_folder (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id),
    folder     TEXT NOT NULL,
    grantee    TEXT NOT NULL,
    team_id    TEXT NOT NULL,
    may_write  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (account_id, folder, grantee, team_id)
) STRICT;
CREATE INDEX shared_folder_grantee ON shared_folder (grantee) WHERE grantee <> '';
CREATE INDEX shared_folder_team ON shared_folder (team_id) WHERE team_id <> '';
