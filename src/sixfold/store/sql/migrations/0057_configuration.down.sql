DROP TABLE configuration_entry;
