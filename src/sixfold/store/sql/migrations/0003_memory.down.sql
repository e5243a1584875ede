DROP TABLE timeline_entry;
DROP TABLE page_link;
DROP TABLE page_collection;
DROP TABLE page_tag;
DROP TABLE page_redirect;
DROP TABLE page_version;
DROP TABLE page;
DROP TABLE memory_usage;
