-- Adds the suspension of accounts, and records of what operators did.
-- An action and its change are written in one transaction; `target` is the id of an account or the name of a setting,
-- `before` and `after` are JSON without secrets.
ALTER TABLE account ADD COLUMN suspended_at BIGINT;

CREATE TABLE operator_action (
    id         TEXT COLLATE "C" PRIMARY KEY,
    actor_id   TEXT COLLATE "C" NOT NULL,
    actor      TEXT COLLATE "C" NOT NULL,
    action     TEXT COLLATE "C" NOT NULL,
    target     TEXT COLLATE "C" NOT NULL,
    before     TEXT COLLATE "C" NOT NULL,
    after      TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX operator_action_target ON operator_action (target, id);
