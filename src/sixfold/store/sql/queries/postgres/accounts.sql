-- name: keys_used | Set the time of the last use of the keys of `ids`, a JSON array.
UPDATE api_key SET used_at = :now WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));
