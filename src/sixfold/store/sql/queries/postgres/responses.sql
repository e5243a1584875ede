-- name: response_sizes | Return the total size of stored responses.
SELECT COALESCE(SUM(size), 0) AS size FROM relay_response
WHERE account_id = :account_id AND id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));
