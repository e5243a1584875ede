-- Without the column, posts that were not listed would be.
DELETE FROM gallery_tag WHERE post_id IN (SELECT id FROM gallery_post WHERE is_unlisted = 1);
DELETE FROM gallery_post WHERE is_unlisted = 1;
ALTER TABLE gallery_post DROP COLUMN inputs;
ALTER TABLE gallery_post DROP COLUMN model;
ALTER TABLE gallery_post DROP COLUMN is_unlisted;
DROP INDEX account_public_name;
ALTER TABLE account DROP COLUMN public_name;
DROP TABLE share;
