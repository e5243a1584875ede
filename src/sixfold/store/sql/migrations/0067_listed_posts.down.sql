DROP INDEX gallery_post_listed;
