-- Adds organizations with members, teams and invitations.
-- An account is an organization: other accounts, its members, may act for it, each with a role. A login session
-- acts for `organization_id`, or for its own account without one. Each member has a key that nobody holds, to
-- which what is run in the browser is attributed. A key may belong to a member, to a team, or to both. Amounts of
-- budgets are in micro-dollars. Existing accounts, keys and sessions have no row and no value here.
ALTER TABLE account ADD COLUMN budget_day BIGINT;
ALTER TABLE account ADD COLUMN budget_month BIGINT;
ALTER TABLE api_key ADD COLUMN member_id TEXT COLLATE "C";
ALTER TABLE api_key ADD COLUMN team_id TEXT COLLATE "C";
ALTER TABLE oauth_grant ADD COLUMN member_id TEXT COLLATE "C";
ALTER TABLE signin ADD COLUMN organization_id TEXT COLLATE "C";
CREATE INDEX api_key_member ON api_key (member_id) WHERE member_id IS NOT NULL;
CREATE INDEX api_key_team ON api_key (team_id) WHERE team_id IS NOT NULL;
CREATE INDEX oauth_grant_member ON oauth_grant (member_id) WHERE member_id IS NOT NULL;
CREATE INDEX signin_organization ON signin (organization_id) WHERE organization_id IS NOT NULL;

CREATE TABLE team (
    id           TEXT COLLATE "C" PRIMARY KEY,
    account_id   TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    name         TEXT COLLATE "C" NOT NULL,
    budget_day   BIGINT,
    budget_month BIGINT,
    created_at   BIGINT NOT NULL,
    UNIQUE (account_id, name)
);

CREATE TABLE member (
    id           TEXT COLLATE "C" PRIMARY KEY,
    account_id   TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    person_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    role         TEXT COLLATE "C" NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    team_id      TEXT COLLATE "C" REFERENCES team (id),
    key_id       TEXT COLLATE "C" NOT NULL,
    source       TEXT COLLATE "C" NOT NULL CHECK (source IN ('founder', 'invitation', 'operator', 'groups')),
    budget_day   BIGINT,
    budget_month BIGINT,
    created_at   BIGINT NOT NULL,
    UNIQUE (account_id, person_id)
);
CREATE UNIQUE INDEX member_owner ON member (account_id) WHERE role = 'owner';
CREATE INDEX member_person ON member (person_id);
CREATE INDEX member_team ON member (team_id) WHERE team_id IS NOT NULL;

CREATE TABLE invitation (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    token_hash BYTEA NOT NULL UNIQUE,
    email      TEXT COLLATE "C" NOT NULL,
    role       TEXT COLLATE "C" NOT NULL CHECK (role IN ('admin', 'member')),
    team_id    TEXT COLLATE "C" REFERENCES team (id),
    invited_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX invitation_account ON invitation (account_id, id);
CREATE INDEX invitation_age ON invitation (expires_at);
