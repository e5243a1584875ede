-- name: configuration_entries | Return all entries of the configuration that operators set.
SELECT section, name, value FROM configuration_entry ORDER BY section, name;

-- name: configuration_entry | Return the value of an entry.
SELECT value FROM configuration_entry WHERE section = :section AND name = :name;

-- name: configuration_count | Count the entries.
SELECT COUNT(*) AS total FROM configuration_entry;

-- name: configuration_entry_set | Store the value of an entry.
INSERT INTO configuration_entry (section, name, value) VALUES (:section, :name, :value)
ON CONFLICT (section, name) DO UPDATE SET value = excluded.value;

-- name: configuration_entry_delete | Delete an entry.
DELETE FROM configuration_entry WHERE section = :section AND name = :name;
