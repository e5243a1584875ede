-- Adds folders of the memory that are shared with another account or a team.
-- `grantee` is an e-mail address or the name of an organization, "" for a team; `team_id` is "" for an account.
CREATE TABLE shared_folder (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    folder     TEXT COLLATE "C" NOT NULL,
    grantee    TEXT COLLATE "C" NOT NULL,
    team_id    TEXT COLLATE "C" NOT NULL,
    may_write  BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (account_id, folder, grantee, team_id)
);
CREATE INDEX shared_folder_grantee ON shared_folder (grantee) WHERE grantee <> '';
CREATE INDEX shared_folder_team ON shared_folder (team_id) WHERE team_id <> '';
