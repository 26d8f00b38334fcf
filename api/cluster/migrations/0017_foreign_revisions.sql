-- A row of `revisions` that no node wrote has a number that a later change would get. It stops none: what is written
-- takes its place, and until then readers leave it out.

-- As before, in the place of such revisions.
CREATE OR REPLACE FUNCTION proxyfleet.write_parts(as_number bigint, by_node text, content json) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    made bigint[] := ARRAY(SELECT (r ->> 0)::bigint FROM json_array_elements(content -> 'revisions') r);
BEGIN
    INSERT INTO documents (collection, id, revision, place, body)
        SELECT d ->> 1, d ->> 2, as_number, (d ->> 0)::int, (d ->> 3)::json
        FROM json_array_elements(content -> 'documents') d
    ON CONFLICT (collection, id) DO UPDATE
        SET revision = excluded.revision, place = excluded.place, body = excluded.body, level = DEFAULT;

    IF EXISTS (SELECT FROM revisions r WHERE r.number = ANY (made)) THEN
        DELETE FROM revisions r WHERE r.number = ANY (made);
        DELETE FROM revision_changes e WHERE e.number = ANY (made);
    END IF;
    INSERT INTO revisions
        SELECT (r ->> 0)::bigint, as_number, by_node, r ->> 1, r ->> 2, (r ->> 3)::bigint, (r ->> 4)::bigint,
            (r ->> 5)::int, (r ->> 6)::int, (r ->> 7)::int, r ->> 8, (r ->> 9)::bigint
        FROM json_array_elements(content -> 'revisions') r;

    INSERT INTO revision_changes
        SELECT (e ->> 0)::bigint, (e ->> 1)::int, e ->> 2, e ->> 3, e ->> 4, e ->> 5,
            decode(e ->> 6, 'base64'), decode(e ->> 7, 'base64')
        FROM json_array_elements(content -> 'changes') e;

    INSERT INTO audit
        SELECT by_node, (a ->> 0)::bigint, as_number, a ->> 1, a ->> 2
        FROM json_array_elements(content -> 'audit') a;
END $$;

-- As before; the last commit has in `foreign` the numbers of such revisions.
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
        SELECT n.*, sum(n.size) OVER (ORDER BY n.number) - n.size AS before
        FROM (SELECT * FROM commits WHERE commits.number > after ORDER BY commits.number LIMIT 1000) n
    ) c ON c.before < most OR c.before = 0
    ORDER BY c.number;
END $$;
