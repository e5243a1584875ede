DROP INDEX gallery_character_original;
DROP INDEX gallery_post_original;
ALTER TABLE gallery_character DROP COLUMN original;
ALTER TABLE gallery_post DROP COLUMN original;
