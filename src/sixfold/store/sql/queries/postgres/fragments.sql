-- fragment: stored_chars | The length of the texts that a prediction stores, in bytes, which are known without reading the texts.
OCTET_LENGTH(row.inputs) + OCTET_LENGTH(row.task) + COALESCE(OCTET_LENGTH(row.output), 0) + COALESCE(OCTET_LENGTH(row.logs), 0)

-- fragment: in | Whether a value is one of the texts of a JSON array; an array lets PostgreSQL use an index of the value.
= ANY (ARRAY(SELECT json_array_elements_text(:argument::json)))

-- fragment: texts | The texts of a JSON array, as rows with a `value`.
json_array_elements_text(:argument::json)

-- fragment: json | A column with JSON, for `->>`.
:argument::json

-- fragment: day | The UTC day of a time in microseconds.
to_char(to_timestamp(:argument / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')

-- fragment: month | The UTC month of a time in microseconds.
to_char(to_timestamp(:argument / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM')

-- fragment: skip_locked | A lock of the selected rows of a table, which leaves out those that another server has locked.
FOR UPDATE OF :argument SKIP LOCKED

-- fragment: without_hook | The document of a guardrail without its hook.
(:argument::jsonb - 'hook')::text

-- fragment: items | The objects or arrays of a JSON array, as rows with a `value`.
json_array_elements(:argument::json)

-- fragment: below | The ids of a JSON array of predictions and of their parts at any depth, as `below`.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:argument::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)

-- fragment: is_below | Whether an id is in `below`; an array lets PostgreSQL use an index of the id.
:argument = ANY (ARRAY(SELECT id FROM below))

-- fragment: page_of | The page of a row, as `p`; `OFFSET 0` makes PostgreSQL look it up by its id.
CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = row.page_id OFFSET 0) AS p

-- fragment: position | The position of a text in another one, or 0.
STRPOS(:argument)

-- fragment: has_phrase | Whether a text has the words `phrase` in sequence, without regard to punctuation.
STRPOS(' ' || REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(LOWER(:argument), '.', ''), ',', ''), '?', ''), '!', ''), ':', ''), '"', ''), chr(10), ' ') || ' ', ' ' || :phrase || ' ') > 0
