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

-- fragment: prompt_id | The prompt id of a client in the task of a prediction.
row.task::json #>> '{inputs,prompt_id}'

-- fragment: without_hook | The document of a guardrail without its hook.
(:argument::jsonb - 'hook')::text
