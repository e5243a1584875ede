DELETE FROM page_link WHERE maker = 'inference';
DROP TABLE memory_statement;
DROP TABLE memory_name;
