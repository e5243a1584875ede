-- Adds the number of each numbered file of a workflow, and the name before it, with an index of the numbers.
ALTER TABLE graph_file ADD COLUMN stem TEXT;
ALTER TABLE graph_file ADD COLUMN number INTEGER;
-- A numbered name is `<stem>_<digits>_.<extension>`. RTRIM removes the extension, then the digits.
UPDATE graph_file SET stem = SUBSTR(n.bare, 1, LENGTH(n.bare) - 1),
    number = CAST(SUBSTR(n.head, LENGTH(n.bare) + 1) AS INTEGER)
FROM (
    SELECT account_id, kind, subfolder, name, head, RTRIM(head, '0123456789') AS bare FROM (
        SELECT account_id, kind, subfolder, name, SUBSTR(dotted, 1, LENGTH(dotted) - 2) AS head FROM (
            SELECT account_id, kind, subfolder, name, RTRIM(name, REPLACE(name, '.', '')) AS dotted FROM graph_file
        ) AS d
        WHERE dotted LIKE '%\_.' ESCAPE '\'
    ) AS h
) AS n
WHERE graph_file.account_id = n.account_id AND graph_file.kind = n.kind AND graph_file.subfolder = n.subfolder
  AND graph_file.name = n.name AND n.bare LIKE '_%\_' ESCAPE '\'
  AND LENGTH(n.head) - LENGTH(n.bare) BETWEEN 1 AND 9;
CREATE INDEX graph_file_number ON graph_file (account_id, kind, subfolder, stem, number) WHERE number IS NOT NULL;
