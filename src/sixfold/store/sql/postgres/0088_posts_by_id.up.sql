-- Orders the index of an account's gallery posts by id, in which exports read them.
DROP INDEX gallery_post_account;
CREATE INDEX gallery_post_account ON gallery_post (account_id, id);
