-- Adds the budgets of former members, which apply again when they come back, with what was spent before.
CREATE TABLE former_member (
    id           TEXT COLLATE "C" PRIMARY KEY,
    account_id   TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    person_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    budget_day   BIGINT,
    budget_month BIGINT,
    UNIQUE (account_id, person_id)
);
CREATE INDEX former_member_person ON former_member (person_id);
