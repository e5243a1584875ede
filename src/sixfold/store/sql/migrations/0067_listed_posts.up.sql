-- Lets the listed posts of the gallery be read without the unlisted ones between them.
CREATE INDEX gallery_post_listed ON gallery_post (id) WHERE is_unlisted = 0;
