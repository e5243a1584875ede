-- Adds the suspension of accounts, and records of what operators did.
-- An action and its change are written in one transaction; `target` is the id of an account or the name of a setting,
-- `before` and `after` are JSON without secrets.
ALTER TABLE account ADD COLUMN suspended_at INTEGER;

CREATE TABLE operator_action (
    id         TEXT PRIMARY KEY,
    actor_id   TEXT NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    before     TEXT NOT NULL,
    after      TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX operator_action_target ON operator_action (target, id);
