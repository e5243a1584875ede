DROP INDEX gallery_post_account;
CREATE INDEX gallery_post_account ON gallery_post (account_id);
