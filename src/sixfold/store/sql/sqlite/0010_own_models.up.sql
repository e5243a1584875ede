-- Adds models of accounts: functions, images, spaces, workflows and trained models.
-- Models of accounts: own ones, imported spaces, workflows, trained pictures. The newest version of a name
-- counts; a removed name has `removed_at` on all of its versions. `document` is in the catalogue's shape.
CREATE TABLE own_model (
    account_id TEXT NOT NULL REFERENCES account (id),
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    kind       TEXT NOT NULL,
    document   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    removed_at INTEGER,
    PRIMARY KEY (account_id, name, version)
) STRICT;
