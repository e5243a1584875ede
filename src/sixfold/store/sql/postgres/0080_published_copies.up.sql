-- Adds the blob of the output that a published copy without its inputs shows.
ALTER TABLE gallery_post ADD COLUMN original TEXT COLLATE "C";
ALTER TABLE gallery_character ADD COLUMN original TEXT COLLATE "C";
CREATE INDEX gallery_post_original ON gallery_post (original) WHERE original IS NOT NULL;
CREATE INDEX gallery_character_original ON gallery_character (original) WHERE original IS NOT NULL;
