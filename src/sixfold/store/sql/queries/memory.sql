-- name: memory_spend | Add written pages, the change in pages and the growth in bytes to an account's memory usage.
INSERT INTO memory_usage (account_id, used, pages, bytes) VALUES (:account_id, :cost, :pages, :bytes)
ON CONFLICT (account_id) DO UPDATE SET
    used = memory_usage.used + :cost, pages = memory_usage.pages + :pages, bytes = memory_usage.bytes + :bytes
RETURNING used, pages, bytes, (SELECT CASE WHEN kind <> 'customer' THEN 'unlimited' ELSE plan END
                 FROM account WHERE id = :account_id) AS plan;

-- name: memory_page_left | Decrement the page count of an account's memory.
UPDATE memory_usage SET pages = pages - 1 WHERE account_id = :account_id;

-- name: memory_used | Return an account's plan and memory usage.
SELECT CASE WHEN a.kind <> 'customer' THEN 'unlimited' ELSE a.plan END AS plan, COALESCE(u.used, 0) AS used,
       COALESCE(u.pages, 0) AS pages, COALESCE(u.bytes, 0) AS bytes
FROM account a LEFT JOIN memory_usage u ON u.account_id = a.id WHERE a.id = :account_id;

-- name: page_by_slug | Return the current version of a page by its slug, including deleted pages.
SELECT p.*, v.head, v.body, v.path FROM page p
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE p.account_id = :account_id AND p.slug = :slug;

-- name: page_by_id | Return the current version of a page by its id, including deleted pages.
SELECT p.*, v.head, v.body, v.path FROM page p
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE p.account_id = :account_id AND p.id = :id;

-- name: page_redirected | Return the page to which a former slug redirects.
SELECT p.*, v.head, v.body, v.path FROM page_redirect r
JOIN page p ON p.id = r.page_id
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE r.account_id = :account_id AND r.slug = :slug;

-- name: pages_by_slugs | Return pages by their slugs, including deleted pages.
SELECT p.*, v.head, v.body, v.path FROM page p
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE p.account_id = :account_id AND p.slug {in :slugs};

-- name: pages_list | Return an account's pages after a slug, filtered and ordered by slug.
SELECT p.id, p.slug, p.title, p.type, p.tags, p.collections, p.version, p.created_at, p.updated_at, p.created_by
FROM page p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL
  AND p.slug > :after AND p.slug <= :until AND p.slug >= :prefix AND p.slug < :prefix_end
  AND p.updated_at > :updated_after
  AND (:type = '' OR p.type = :type)
  AND (:tag = '' OR EXISTS (SELECT 1 FROM page_tag t
       WHERE t.account_id = p.account_id AND t.tag = :tag AND t.page_id = p.id))
  AND (:collection = '' OR EXISTS (SELECT 1 FROM page_collection c
       WHERE c.account_id = p.account_id AND c.collection = :collection AND c.page_id = p.id))
  AND {in_scope p.id}
ORDER BY p.slug LIMIT :limit;

-- name: pages_slice_end | Return the slug of the last page of a slice of an account's pages, unless it is their last slice.
SELECT slug FROM page
WHERE account_id = :account_id AND slug > :after AND slug >= :prefix AND slug < :prefix_end
ORDER BY slug LIMIT 1 OFFSET :size;

-- name: pages_counted | Return the number of an account's pages, which each write updates.
SELECT pages FROM memory_usage WHERE account_id = :account_id;

-- name: pages_named | Return an account's pages whose last segment of the slug begins with a text, ordered by it.
SELECT p.slug, p.title FROM page p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL AND p.name >= :prefix AND p.name < :prefix_end
  AND {in_scope p.id}
ORDER BY p.name, p.slug LIMIT :limit;

-- name: pages_recent | Return an account's pages, most recently updated first.
SELECT p.slug, p.title, p.type, p.version, p.updated_at FROM page p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL
  AND {in_scope p.id}
ORDER BY p.updated_at DESC, p.slug LIMIT :limit;

-- name: pages_orphans | Return pages without links to or from other pages, of the 10,000 last changed ones, ordered by slug.
SELECT p.slug, p.title, p.type, p.version, p.updated_at
FROM (SELECT id, slug, title, type, version, updated_at FROM page
      WHERE account_id = :account_id AND deleted_at IS NULL ORDER BY updated_at DESC LIMIT 10000) AS p
WHERE NOT EXISTS (SELECT 1 FROM page_link l WHERE l.page_id = p.id AND l.ended_at IS NULL
                  AND l.origin <> 'dismissed' AND l.target_id IS NOT NULL AND l.target_id <> p.id)
  AND NOT EXISTS (SELECT 1 FROM page_link l WHERE l.target_id = p.id AND l.ended_at IS NULL
                  AND l.origin <> 'dismissed' AND l.page_id <> p.id)
  AND {in_scope p.id}
ORDER BY p.slug LIMIT :limit;

-- name: pages_total | Count an account's pages.
SELECT COUNT(*) AS pages FROM page p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL
  AND {in_scope p.id};

-- name: types_counted | Count an account's pages by type.
SELECT p.type AS name, COUNT(*) AS count FROM page p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL AND p.type > :after
  AND {in_scope p.id}
GROUP BY p.type ORDER BY p.type LIMIT :limit;

-- name: tags_counted | Count an account's pages by tag.
SELECT t.tag AS name, COUNT(*) AS count FROM page_tag t
WHERE t.account_id = :account_id AND t.tag > :after
  AND {in_scope t.page_id}
GROUP BY t.tag ORDER BY t.tag LIMIT :limit;

-- name: tags_beginning | Count an account's pages by the tags that begin with a text.
SELECT t.tag AS name, COUNT(*) AS count FROM page_tag t
WHERE t.account_id = :account_id AND t.tag >= :prefix AND t.tag < :prefix_end
  AND {in_scope t.page_id}
GROUP BY t.tag ORDER BY t.tag LIMIT :limit;

-- name: collections_counted | Count an account's pages by collection.
SELECT c.collection AS name, COUNT(*) AS count FROM page_collection c
WHERE c.account_id = :account_id AND c.collection > :after
  AND (:scope = '' OR REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope)
GROUP BY c.collection ORDER BY c.collection LIMIT :limit;

-- name: pages_put | Insert or update pages.
INSERT INTO page (id, account_id, slug, name, title, type, tags, collections, version, created_at, updated_at,
                  created_by, deleted_at)
SELECT value ->> 'id', :account_id, value ->> 'slug', value ->> 'name',
       value ->> 'title', value ->> 'type', value ->> 'tags',
       value ->> 'collections', CAST(value ->> 'version' AS BIGINT), CAST(value ->> 'created_at' AS BIGINT),
       CAST(value ->> 'updated_at' AS BIGINT), value ->> 'created_by', NULL
FROM {items :rows} WHERE TRUE
ON CONFLICT (id) DO UPDATE SET
    slug = excluded.slug, name = excluded.name, title = excluded.title, type = excluded.type,
    tags = excluded.tags, collections = excluded.collections, version = excluded.version,
    updated_at = excluded.updated_at, deleted_at = NULL;

-- name: versions_end | Set the end time of the current versions of pages.
UPDATE page_version SET ended_at = :ended_at
WHERE page_id {in :ids} AND ended_at IS NULL;

-- name: versions_put | Insert page versions.
INSERT INTO page_version (page_id, version, account_id, slug, title, type, tags, collections, head, body, path,
                          operation, created_by, on_behalf_of, created_at, chars)
SELECT value ->> 'id', CAST(value ->> 'version' AS BIGINT), :account_id, value ->> 'slug',
       value ->> 'title', value ->> 'type', value ->> 'tags',
       value ->> 'collections', value ->> 'head', value ->> 'body',
       value ->> 'path', value ->> 'operation', value ->> 'by',
       value ->> 'behalf', CAST(value ->> 'updated_at' AS BIGINT), CAST(value ->> 'chars' AS BIGINT)
FROM {items :rows};

-- name: page_delete | Mark a page as deleted.
UPDATE page SET deleted_at = :deleted_at, updated_at = :deleted_at
WHERE account_id = :account_id AND id = :id RETURNING id;

-- name: page_tags_clear | Delete the tags of pages.
DELETE FROM page_tag WHERE page_id {in :ids};

-- name: page_collections_clear | Delete the collection memberships of pages.
DELETE FROM page_collection WHERE page_id {in :ids};

-- name: page_tags_put | Insert tags of pages.
INSERT INTO page_tag (account_id, tag, page_id)
SELECT :account_id, value ->> 'name', value ->> 'id' FROM {items :rows};

-- name: page_collections_put | Insert collection memberships of pages.
INSERT INTO page_collection (account_id, collection, page_id)
SELECT :account_id, value ->> 'name', value ->> 'id' FROM {items :rows};

-- name: redirect_put | Insert or replace the redirect from a former slug to a page.
INSERT INTO page_redirect (account_id, slug, page_id, created_at)
VALUES (:account_id, :slug, :page_id, :now)
ON CONFLICT (account_id, slug) DO UPDATE SET page_id = excluded.page_id, created_at = excluded.created_at;

-- name: redirects_put | Insert redirects from former slugs to pages, unless a page or redirect already has the slug.
INSERT INTO page_redirect (account_id, slug, page_id, created_at)
SELECT :account_id, j.value ->> 'slug', j.value ->> 'id', :now FROM {items :rows} AS j
WHERE NOT EXISTS (
    SELECT 1 FROM page p WHERE p.account_id = :account_id AND p.slug = j.value ->> 'slug')
ON CONFLICT (account_id, slug) DO NOTHING;

-- name: redirects_of | Return the former slugs of pages.
SELECT page_id, slug FROM page_redirect
WHERE account_id || '' = :account_id AND page_id {in :ids} ORDER BY slug;

-- name: links_redirected | Resolve unresolved links and links by name through the redirects of their target slugs.
UPDATE page_link SET by_name = 0, target_id = (
    SELECT r.page_id FROM page_redirect r WHERE r.account_id = :account_id AND r.slug = page_link.target)
WHERE account_id = :account_id AND ended_at IS NULL AND (target_id IS NULL OR by_name = 1) AND target IN (
    SELECT r.slug FROM {items :rows} AS j
    JOIN page_redirect r ON r.account_id = :account_id AND r.slug = j.value ->> 'slug');

-- name: redirects_clear | Delete redirects whose slugs are used by pages again.
DELETE FROM page_redirect
WHERE account_id = :account_id AND slug {in :slugs};

-- name: versions_list | Return a page's versions before a number within the allowed collections, newest first.
SELECT version, slug, title, type, tags, collections, operation, created_by, on_behalf_of, created_at, ended_at,
       chars
FROM page_version WHERE account_id = :account_id AND page_id = :page_id AND version < :before
  AND (:scope = '' OR EXISTS (SELECT 1 FROM {texts collections} AS c
       WHERE REPLACE(:scope, :sep || c.value || :sep, '') <> :scope))
ORDER BY version DESC LIMIT :limit;

-- name: version_by_number | Return a version of a page by its number.
SELECT * FROM page_version WHERE account_id = :account_id AND page_id = :page_id AND version = :version;

-- name: version_of_slug_at | Return the page version that had a slug at a point in time.
SELECT v.*, p.created_at AS page_created_at, p.created_by AS page_created_by FROM page_version v
JOIN page p ON p.id = v.page_id
WHERE v.account_id = :account_id AND v.slug = :slug AND v.created_at <= :at
  AND (v.ended_at IS NULL OR v.ended_at > :at)
ORDER BY v.created_at DESC, v.version DESC LIMIT 1;

-- name: version_of_page_at | Return the version of a page at a point in time.
SELECT v.*, p.created_at AS page_created_at, p.created_by AS page_created_by FROM page_version v
JOIN page p ON p.id = v.page_id
WHERE v.account_id = :account_id AND v.page_id = :page_id AND v.created_at <= :at
  AND (v.ended_at IS NULL OR v.ended_at > :at)
ORDER BY v.created_at DESC, v.version DESC LIMIT 1;

-- name: link_targets | Return the pages whose current or former slug is in a list.
SELECT p.slug AS target, p.id, p.slug, 0 AS rank FROM page p
WHERE p.account_id = :account_id AND p.slug {in :targets}
UNION ALL
SELECT r.slug, p.id, p.slug, 1 FROM page_redirect r JOIN page p ON p.id = r.page_id
WHERE r.account_id = :account_id AND r.slug {in :targets};

-- name: link_names | Return for each last slug segment the page with the shortest slug.
SELECT name AS target, id, slug, 2 AS rank FROM (
    SELECT p.name, p.id, p.slug, ROW_NUMBER() OVER (PARTITION BY p.name ORDER BY LENGTH(p.slug), p.slug) AS place
    FROM page p
    WHERE p.account_id = :account_id AND p.name {in :names} AND p.deleted_at IS NULL
) AS named WHERE place = 1;

-- name: links_kept | Return the current links of pages by one maker.
SELECT page_id, type, target, created_at, target_id, by_name, origin, context FROM page_link
WHERE page_id {in :ids} AND maker = :maker AND ended_at IS NULL;

-- name: links_put | Insert links of pages; on a conflict, update and reopen the link.
INSERT INTO page_link (page_id, type, target, maker, created_at, account_id, target_id, by_name, origin, context)
SELECT value ->> 'id', value ->> 'type', value ->> 'target',
       value ->> 'maker', :at, :account_id, value ->> 'target_id',
       CAST(value ->> 'by_name' AS BIGINT), value ->> 'origin', value ->> 'context'
FROM {items :rows} WHERE TRUE
ON CONFLICT (page_id, type, target, maker, created_at) DO UPDATE SET
    ended_at = NULL, target_id = excluded.target_id, by_name = excluded.by_name, context = excluded.context,
    origin = excluded.origin;

-- name: links_end | Set the end time of removed links.
UPDATE page_link SET ended_at = :ended_at
WHERE ended_at IS NULL AND maker = :maker AND (page_id, type, target) IN (
    SELECT json_extract(value, '$.id'), json_extract(value, '$.type'), json_extract(value, '$.target')
    FROM json_each(:rows));

-- name: links_context | Update the context lines of current links from page bodies.
UPDATE page_link SET context = json_extract(j.value, '$.context') FROM json_each(:rows) AS j
WHERE page_link.page_id = json_extract(j.value, '$.id') AND page_link.type = json_extract(j.value, '$.type')
  AND page_link.target = json_extract(j.value, '$.target') AND page_link.maker = 'body'
  AND page_link.ended_at IS NULL;

-- name: links_arrive | Resolve unresolved links and links by name whose target is the slug of a new page.
UPDATE page_link SET by_name = 0, target_id = (
    SELECT p.id FROM page p WHERE p.account_id = :account_id AND p.slug = page_link.target)
WHERE account_id = :account_id AND ended_at IS NULL AND (target_id IS NULL OR by_name = 1)
  AND target {in :slugs};

-- name: links_arrive_by_name | Resolve unresolved links whose target is the last slug segment of a new page.
UPDATE page_link SET by_name = 1, target_id = (
    SELECT json_extract(j.value, '$.id') FROM json_each(:rows) AS j
    WHERE json_extract(j.value, '$.name') = page_link.target LIMIT 1)
WHERE account_id = :account_id AND ended_at IS NULL AND (target_id IS NULL OR by_name = 1) AND target_id IS NULL
  AND target IN (SELECT json_extract(value, '$.name') FROM json_each(:rows));

-- name: links_arrive_within | Resolve unresolved links whose target is a new page's path relative to the nearest shared folder.
UPDATE page_link SET by_name = 1, target_id = w.id
FROM (
    SELECT json_extract(j.value, '$.id') AS id, l.page_id, l.type, l.target, l.maker, l.created_at, ROW_NUMBER() OVER (
        PARTITION BY l.page_id, l.type, l.target, l.maker, l.created_at
        ORDER BY LENGTH(json_extract(j.value, '$.folder'))) AS place
    FROM json_each(:rows) AS j
    CROSS JOIN page_link l ON l.account_id = :account_id AND l.target = json_extract(j.value, '$.path')
    JOIN page p ON p.id = l.page_id
    WHERE l.ended_at IS NULL AND (l.target_id IS NULL OR l.by_name = 1) AND l.target_id IS NULL
      AND SUBSTR(p.slug, 1, LENGTH(json_extract(j.value, '$.folder'))) = json_extract(j.value, '$.folder')
) AS w
WHERE w.place = 1 AND page_link.page_id = w.page_id AND page_link.type = w.type AND page_link.target = w.target
  AND page_link.maker = w.maker AND page_link.created_at = w.created_at;

-- name: links_out | Return the links of a page at a point in time with their target pages.
SELECT l.type, l.target, l.maker, l.origin, l.context, l.created_at, t.slug AS to_slug, t.title AS to_title,
       t.collections AS to_collections, (t.id IS NOT NULL AND t.deleted_at IS NULL) AS resolved
FROM page_link l LEFT JOIN page t ON t.id = l.target_id
WHERE l.page_id = :page_id AND l.account_id = :account_id AND l.origin <> 'dismissed'
  AND l.created_at <= :at AND (l.ended_at IS NULL OR l.ended_at > :at)
ORDER BY l.created_at, l.target, l.type;

-- name: links_out_of | Return the current links of pages with their target pages.
SELECT l.page_id, l.type, l.target, l.maker, l.origin, l.context, l.created_at, t.slug AS to_slug,
       t.collections AS to_collections, (t.id IS NOT NULL AND t.deleted_at IS NULL) AS resolved
FROM page_link l LEFT JOIN page t ON t.id = l.target_id
WHERE l.page_id {in :ids} AND l.account_id = :account_id AND l.ended_at IS NULL
  AND l.origin <> 'dismissed'
ORDER BY l.page_id, l.created_at, l.target, l.type;

-- name: links_in | Return 10,000 current links to a page with their source pages, the best of each slug and type, after a slug and type.
SELECT type, origin, context, created_at, from_slug, from_title FROM (
    SELECT l.type, l.origin, l.context, l.created_at, s.slug AS from_slug, s.title AS from_title,
           ROW_NUMBER() OVER (PARTITION BY s.slug, l.type ORDER BY CASE l.origin WHEN 'explicit' THEN 0 WHEN 'confirmed' THEN 1 ELSE 2 END, l.maker, l.target) AS place
    FROM (SELECT page_id, type, origin, context, created_at, maker, target FROM page_link
          WHERE target_id = :page_id AND account_id = :account_id AND ended_at IS NULL AND origin <> 'dismissed'
          LIMIT 10000) AS l JOIN page s ON s.id = l.page_id
    WHERE s.deleted_at IS NULL
      AND (s.slug > :after OR (s.slug = :after AND l.type > :after_type))
      AND {in_scope s.id}) AS found
WHERE place = 1 ORDER BY from_slug, type LIMIT :limit;

-- name: links_in_at | Return the links to a page at a point in time with the source page versions of that time, as `links_in` does.
SELECT type, origin, context, created_at, from_slug, from_title, from_collections FROM (
    SELECT l.type, l.origin, l.context, l.created_at, v.slug AS from_slug, v.title AS from_title,
           v.collections AS from_collections,
           ROW_NUMBER() OVER (PARTITION BY v.slug, l.type ORDER BY CASE l.origin WHEN 'explicit' THEN 0 WHEN 'confirmed' THEN 1 ELSE 2 END, l.maker, l.target) AS place
    FROM (SELECT page_id, type, origin, context, created_at, maker, target FROM page_link
          WHERE target_id = :page_id AND account_id = :account_id AND origin <> 'dismissed'
            AND created_at <= :at AND (ended_at IS NULL OR ended_at > :at)
          LIMIT 10000) AS l JOIN page_version v ON v.page_id = l.page_id
    WHERE v.created_at <= :at AND (v.ended_at IS NULL OR v.ended_at > :at)
      AND (v.slug > :after OR (v.slug = :after AND l.type > :after_type))) AS found
WHERE place = 1 ORDER BY from_slug, type LIMIT :limit;

-- name: link_between | Return the current links of a page to one target, by any maker.
SELECT l.type, l.target, l.maker, l.origin, l.created_at, t.collections AS to_collections FROM page_link l LEFT JOIN page t ON t.id = l.target_id
WHERE l.page_id = :page_id AND l.account_id = :account_id AND l.ended_at IS NULL AND l.origin <> 'dismissed'
  AND (l.target = :target OR t.slug = :target) AND (:type = '' OR l.type = :type);

-- name: link_origin | Set the origin of an inferred link, such as confirmed or dismissed.
UPDATE page_link SET origin = :origin
WHERE page_id = :page_id AND account_id = :account_id AND maker = 'inference' AND ended_at IS NULL
  AND type = :type AND target = :target RETURNING page_id;

-- name: edges_out | Return the links of pages with their target pages for graph traversal.
SELECT l.page_id AS from_id, l.target_id AS to_id, l.type, t.slug, t.title, t.collections
FROM page_link l JOIN page t ON t.id = l.target_id
WHERE l.page_id {in :ids} AND l.account_id = :account_id AND l.ended_at IS NULL
  AND l.origin <> 'dismissed' AND t.deleted_at IS NULL AND (:type = '' OR l.type = :type)
ORDER BY l.page_id, t.slug, l.type LIMIT :limit;

-- name: edges_in | Return 10,000 links to pages with their source pages for graph traversal.
SELECT l.target_id AS from_id, l.page_id AS to_id, l.type, s.slug, s.title, s.collections
FROM (SELECT page_id, target_id, type FROM page_link
      WHERE target_id {in :ids} AND account_id = :account_id AND ended_at IS NULL
        AND origin <> 'dismissed' AND (:type = '' OR type = :type)
      LIMIT 10000) AS l JOIN page s ON s.id = l.page_id
WHERE s.deleted_at IS NULL
ORDER BY l.target_id, s.slug, l.type LIMIT :limit;

-- name: timeline_kept | Return the current timeline entries of pages that come from their bodies.
SELECT id, page_id, date, summary, detail, source FROM timeline_entry
WHERE page_id {in :ids} AND maker = 'body' AND ended_at IS NULL;

-- name: timeline_put | Insert timeline entries.
INSERT INTO timeline_entry (id, account_id, page_id, maker, date, summary, detail, source, created_by, created_at)
SELECT value ->> 'id', :account_id, value ->> 'page_id', value ->> 'maker',
       value ->> 'date', value ->> 'summary', value ->> 'detail',
       value ->> 'source', :created_by, :at
FROM {items :rows};

-- name: timeline_end | Set the end time of timeline entries removed from a body.
UPDATE timeline_entry SET ended_at = :ended_at WHERE id {in :ids};

-- name: timeline_list | Return a page's timeline at a point in time before a position, newest date first.
SELECT id, maker, date, summary, detail, source, created_by, created_at FROM timeline_entry
WHERE page_id = :page_id AND account_id = :account_id
  AND created_at <= :at AND (ended_at IS NULL OR ended_at > :at)
  AND (date < :before_date OR (date = :before_date AND id < :before_id))
ORDER BY date DESC, id DESC LIMIT :limit;

-- name: timeline_of_calls | Return the current timeline entries of pages that were added by API, oldest first, for the export.
SELECT page_id, date, summary, detail, source FROM timeline_entry
WHERE page_id {in :ids} AND account_id = :account_id AND maker = 'api'
  AND ended_at IS NULL
ORDER BY page_id, date, id;

-- name: timeline_added_size | Return the number and the characters of a page's timeline entries that were added by API.
SELECT COUNT(*) AS entries, COALESCE(SUM(LENGTH(summary) + LENGTH(detail) + LENGTH(source)), 0) AS chars
FROM timeline_entry WHERE page_id = :page_id AND maker = 'api' AND ended_at IS NULL;

-- name: pages_exported | Return an account's pages with their full text after a slug, ordered by slug.
SELECT p.*, v.head, v.body, v.path FROM page p JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE p.account_id = :account_id AND p.deleted_at IS NULL AND p.slug > :after
  AND {in_scope p.id}
ORDER BY p.slug LIMIT :limit;

-- name: pages_exported_sizes | Return the sizes in characters of the rows of `pages_exported`.
SELECT v.chars + LENGTH(v.head)
       + COALESCE((SELECT SUM(LENGTH(t.summary) + LENGTH(t.detail) + LENGTH(t.source)) FROM timeline_entry t
                   WHERE t.page_id = p.id AND t.maker = 'api' AND t.ended_at IS NULL), 0) AS chars
FROM page p JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE p.account_id = :account_id AND p.deleted_at IS NULL AND p.slug > :after
  AND {in_scope p.id}
ORDER BY p.slug LIMIT :limit;

-- name: folders_changed | Add differences to the page counts of folders.
INSERT INTO memory_folder (account_id, parent, name, pages)
SELECT :account_id, value ->> 0, value ->> 1, CAST(value ->> 2 AS BIGINT) FROM {items :rows} WHERE TRUE
ON CONFLICT (account_id, parent, name) DO UPDATE SET pages = memory_folder.pages + excluded.pages;

-- name: folders_emptied | Delete the folders of a list that contain no pages.
DELETE FROM memory_folder WHERE account_id = :account_id AND pages = 0
  AND (parent, name) IN (SELECT value ->> 0, value ->> 1 FROM {items :rows});

-- name: folders_counted | Return the subfolders of a folder with their page counts.
SELECT name, pages AS count FROM memory_folder
WHERE account_id = :account_id AND parent = :prefix ORDER BY name LIMIT :limit;

-- name: folders_counted_in | Count pages by subfolder within a list of collections, from the pages themselves.
SELECT SUBSTR(p.slug, LENGTH(:prefix) + 1, {position SUBSTR(p.slug, LENGTH(:prefix) + 1), '/'} - 1) AS name,
       COUNT(*) AS count
FROM page p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL AND p.slug >= :prefix AND p.slug < :prefix_end
  AND {position SUBSTR(p.slug, LENGTH(:prefix) + 1), '/'} > 0
  AND p.id IN (SELECT c.page_id FROM page_collection c WHERE c.account_id = :account_id
               AND c.collection {in :collections})
GROUP BY 1 ORDER BY 1 LIMIT :limit;

-- name: pages_in_folder | Return the pages directly in a folder after a slug, ordered by slug.
SELECT p.slug, p.title, p.type, p.version, p.updated_at FROM page p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL
  AND SUBSTR(p.slug, 1, LENGTH(p.slug) - LENGTH(p.name)) = :prefix AND p.slug > :after
  AND {in_scope p.id}
ORDER BY p.slug LIMIT :limit;

-- name: pages_titled | Return the slugs, titles and collections of pages by id.
SELECT p.id, p.slug, p.title, p.collections FROM page p
WHERE p.account_id || '' = :account_id AND p.deleted_at IS NULL AND p.id {in :ids};

-- name: page_files | Return the files of pages.
SELECT f.page_id, f.file_id, f.media_type FROM page_file f
WHERE f.account_id = :account_id AND f.page_id {in :ids};

-- name: page_file_put | Set the file of a page.
INSERT INTO page_file (page_id, account_id, file_id, media_type)
VALUES (:page_id, :account_id, :file_id, :media_type)
ON CONFLICT (page_id) DO UPDATE SET file_id = excluded.file_id, media_type = excluded.media_type;

-- name: memory_batches_spent | Return what an account's requests to the memory's model have cost since a time, with reservations.
SELECT COALESCE(SUM(cost + reserved), 0) AS spent FROM memory_batch
WHERE account_id = :account_id AND created_at >= :since;

-- name: memory_batch_put | Insert a running batch.
INSERT INTO memory_batch (id, account_id, kind, state, folder, source, created_by, reserved, created_at)
VALUES (:id, :account_id, :kind, 'running', :folder, :source, :created_by, :reserved, :at);

-- name: memory_batch_finish | Replace the reservation of a batch with its cost.
UPDATE memory_batch SET state = 'done', reserved = 0, cost = :cost WHERE id = :id AND state = 'running';

-- name: memory_answers_forget | Delete an account's answers before a time.
DELETE FROM memory_batch WHERE account_id = :account_id AND kind = 'answer' AND created_at < :before;

-- name: memory_batch_page_put | Insert a page of a batch, or set the version that it has after the batch.
INSERT INTO memory_batch_page (batch_id, page_id, version_before, version_after)
VALUES (:batch_id, :page_id, :before, :after)
ON CONFLICT (batch_id, page_id) DO UPDATE SET version_after = excluded.version_after;

-- name: memory_batch_find | Return a batch of `remember` of an account.
SELECT * FROM memory_batch WHERE id = :id AND account_id = :account_id AND kind = 'remember';

-- name: memory_batch_pages | Return the pages of a batch.
SELECT page_id, version_before, version_after FROM memory_batch_page WHERE batch_id = :batch_id ORDER BY page_id;

-- name: memory_batch_undone | Mark a batch as undone.
UPDATE memory_batch SET state = 'undone' WHERE id = :id;

-- name: memory_batches_list | Return an account's batches of `remember` before an id, newest first.
SELECT * FROM memory_batch
WHERE account_id = :account_id AND kind = 'remember' AND id < :before AND (:created_by = '' OR created_by = :created_by)
ORDER BY id DESC LIMIT :limit;
