DROP TABLE gallery_tag;
DROP TABLE gallery_post;
DROP TABLE gallery_character;
