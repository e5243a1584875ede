-- Adds an index of login sessions by their id, which a session keeps when it switches to an organization.
CREATE INDEX signin_id ON signin (id);
