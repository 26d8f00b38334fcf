-- A commit that is too large for one text, such as an import of a hundred thousand accounts, is left out with all behind
-- it: what takes it reads the documents themselves, in pages (`api.cluster.following.rereading`).
CREATE OR REPLACE FUNCTION proxyfleet.changes_after(after bigint, known uuid, reader text, most bigint)
RETURNS TABLE (
    fleet uuid, head bigint, head_stamp uuid, pruned_to bigint, followed boolean, audited bigint,
    number bigint, stamp uuid, node text, at double precision, content text
)
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT f.id, f.head, (SELECT h.stamp FROM commits h WHERE h.number = f.head), f.pruned_to,
        EXISTS (SELECT FROM commits k WHERE k.number = after AND (known IS NULL OR k.stamp = known)),
        coalesce((SELECT max(e.seq) FROM audit e WHERE e.node = reader), 0),
        c.number, c.stamp, c.node, extract(epoch FROM c.at)::float8,
        CASE WHEN c.number IS NOT NULL THEN json_build_object(
            'documents', (
                SELECT json_agg(json_build_array(d.collection, d.id, d.body) ORDER BY d.place)
                FROM documents_of(c.number) d
            ),
            'levels', (
                SELECT json_agg(json_build_array(d.collection, d.id, d.level))
                FROM documents d WHERE d.revision = c.number AND d.level > 1
            ),
            'revisions', (
                SELECT json_agg(json_build_array(
                    json_build_array(
                        r.number, r."timestamp", r.author, r.restored, r.undone,
                        r.created, r.updated, r.deleted, r.kinds, r.size
                    ),
                    (
                        SELECT json_agg(json_build_array(
                            e.collection, e.id, e.name, e.fields, encode(e.before, 'base64'), encode(e.after, 'base64')
                        ) ORDER BY e.place)
                        FROM revision_changes e WHERE e.number = r.number
                    )
                ) ORDER BY r.number)
                FROM revisions r WHERE r."commit" = c.number AND r.number <= f.history
            ),
            'foreign', CASE WHEN c.number = f.head THEN (
                SELECT json_agg(r.number) FROM revisions r WHERE r.number > f.history
            ) END,
            'audit', (
                SELECT json_agg(json_build_array(a.seq, a.content, a.hash) ORDER BY a.seq)
                FROM audit a WHERE a."commit" = c.number AND a.node = reader
            )
        )::text END
    FROM fleet f LEFT JOIN LATERAL (
        SELECT n.*, sum(n.size) OVER (ORDER BY n.number) - n.size AS before, max(n.size) OVER (ORDER BY n.number) AS largest
        FROM (SELECT * FROM commits WHERE commits.number > after ORDER BY commits.number LIMIT 1000) n
    ) c ON c.largest <= 16777216 AND (c.before < most OR c.before = 0)
    ORDER BY c.number;
END $$;
