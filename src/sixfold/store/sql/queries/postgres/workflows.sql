-- name: graph_outcomes | Return unexpired node outputs for a list of keys, unless their prediction, or one whose outputs it used, has not succeeded.
SELECT o.key, o.shown, o.media, o.prediction_id, m.blob FROM graph_outcome o LEFT JOIN media m ON m.name = o.media
WHERE o.account_id = :account_id AND o.expires_at > :now
  AND (o.prediction_id = '' OR {is_paid_outcome o})
  AND o.key = ANY (ARRAY(SELECT json_array_elements_text(:keys::json)));
