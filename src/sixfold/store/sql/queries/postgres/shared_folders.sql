-- name: pages_set_collections | Set the collections of pages.
UPDATE page SET collections = j.value ->> 'collections' FROM json_array_elements(:rows::json) AS j (value)
WHERE page.account_id = :account_id AND page.id = j.value ->> 'id';

-- name: versions_set_collections | Set the collections of the current versions of pages.
UPDATE page_version SET collections = j.value ->> 'collections' FROM json_array_elements(:rows::json) AS j (value)
WHERE page_version.account_id = :account_id AND page_version.ended_at IS NULL
  AND page_version.page_id = j.value ->> 'id';
