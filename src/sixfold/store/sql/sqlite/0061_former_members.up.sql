-- Adds the budgets of former members, which apply again when they come back, with what was spent before.
CREATE TABLE former_member (
    id           TEXT PRIMARY KEY,
    account_id   TEXT NOT NULL REFERENCES account (id),
    person_id    TEXT NOT NULL REFERENCES account (id),
    budget_day   INTEGER,
    budget_month INTEGER,
    UNIQUE (account_id, person_id)
) STRICT;
CREATE INDEX former_member_person ON former_member (person_id);
