-- Nodes of different releases: levels of documents (`api.engine.levels`), and which migrations each program knows.

ALTER TABLE proxyfleet.migrations ADD COLUMN removes boolean NOT NULL DEFAULT false;
ALTER TABLE proxyfleet.heartbeats ADD COLUMN schema integer;
CREATE INDEX documents_by_level ON proxyfleet.documents (level) WHERE level > 1;

-- Nodes that a change has to wait for: seen within 24 h, with a lower level than this.
CREATE FUNCTION proxyfleet.nodes_below(wanted int) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT coalesce(d.body ->> 'name', h.node)
        FROM heartbeats h LEFT JOIN documents d ON d.collection = 'nodes' AND d.id = h.node
        WHERE h.level < wanted AND h.at > clock_timestamp() - interval '24 h' ORDER BY 1;
END $$;

-- As before; and in `level` [that of the program, if it is not 1], in `levels` [[collection, id, level], …] of documents
-- that have another one than 1. PF010 names the nodes that do not know a level, PF011 a document that the program
-- doesn't.
ALTER FUNCTION proxyfleet.write_change(bigint, text, json) RENAME TO write_of_any_level;
CREATE FUNCTION proxyfleet.write_change(as_number bigint, by_node text, content json) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    of_program int := coalesce((content -> 'level' ->> 0)::int, 1);
    newer text;
    below text;
BEGIN
    IF EXISTS (SELECT FROM documents d WHERE d.level > 1 AND d.level > of_program) THEN
        SELECT d.collection || '/' || d.id INTO newer
            FROM json_array_elements(content -> 'documents') c
                JOIN documents d ON d.collection = c ->> 1 AND d.id = c ->> 2
            WHERE d.level > of_program LIMIT 1;
        IF newer IS NOT NULL THEN
            RAISE EXCEPTION '%', newer USING ERRCODE = 'PF011';
        END IF;
    END IF;
    PERFORM write_of_any_level(as_number, by_node, content);
    IF of_program > 1 THEN
        SELECT string_agg(n, ',') INTO below FROM nodes_below(
            (SELECT max((l ->> 2)::int) FROM json_array_elements(content -> 'levels') l)
        ) n;
        IF below IS NOT NULL THEN
            RAISE EXCEPTION '%', below USING ERRCODE = 'PF010';
        END IF;
        UPDATE documents d SET level = (l ->> 2)::int
            FROM json_array_elements(content -> 'levels') l WHERE d.collection = l ->> 0 AND d.id = l ->> 1;
    END IF;
END $$;

-- As before, with `levels` as above.
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
                FROM revisions r WHERE r."commit" = c.number
            ),
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

-- As before; and in `schema` the last migration that the program knows. When the database had a later one that removes
-- something, nothing is written, and `outdated` says by which release that was.
-- The reply has the fleet's `level`, which is the lowest of the nodes that were seen within 24 h, the last migration in
-- `schema`, and in `unknown` the documents that the program can't read, [[collection, id, revision, level], …].
ALTER TABLE proxyfleet.heartbeats DROP CONSTRAINT heartbeat_size, DROP COLUMN settings, ADD CONSTRAINT heartbeat_size
    CHECK (octet_length(problems::text) <= 16777216 AND octet_length(boot) + octet_length(version) <= 1000);
CREATE OR REPLACE FUNCTION proxyfleet.write_heartbeat(of_node text, beat json) RETURNS json
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    began timestamptz := clock_timestamp()
        - make_interval(secs => least(greatest((beat ->> 'up_for')::float8, 0), 1e9));
    last bigint := (beat ->> 'commit')::bigint;
    known uuid := (beat ->> 'stamp')::uuid;
    knows int := (beat ->> 'schema')::int;
    outdated text := (
        SELECT m.version FROM migrations m WHERE m.removes AND m.number > coalesce((beat ->> 'schema')::int, 0)
        ORDER BY m.number DESC LIMIT 1
    );
    other timestamptz;
BEGIN
    IF outdated IS NULL THEN
        INSERT INTO heartbeats AS h (
            node, at, boot, started_at, since, version, level, schema, "commit", stamp, clock_offset, problems
        ) VALUES (
            of_node, moment, beat ->> 'boot', began, began, beat ->> 'version', (beat ->> 'level')::int, knows, last, known,
            (beat ->> 'clock_offset')::float8, beat -> 'problems'
        ) ON CONFLICT (node) DO UPDATE SET
            at = excluded.at, boot = excluded.boot, version = excluded.version, level = excluded.level,
            started_at = began, since = CASE WHEN h.boot = excluded.boot THEN least(h.since, began) ELSE began END,
            schema = excluded.schema, "commit" = excluded."commit", stamp = excluded.stamp,
            clock_offset = excluded.clock_offset, problems = excluded.problems
        WHERE h.boot = excluded.boot OR h.at < excluded.at - interval '10 s' OR h.since > began;
        IF NOT FOUND THEN
            other := (SELECT h.since FROM heartbeats h WHERE h.node = of_node);
        ELSE
            PERFORM pg_notify('proxyfleet_' || of_node, '');
        END IF;
    END IF;
    RETURN (SELECT json_build_object(
        'fleet', f.id, 'head', f.head, 'now', extract(epoch FROM clock_timestamp()),
        'level', (SELECT min(h.level) FROM heartbeats h WHERE h.at > clock_timestamp() - interval '24 h'),
        'schema', (SELECT max(m.number) FROM migrations m), 'outdated', outdated,
        'followed', EXISTS (SELECT FROM commits c WHERE c.number = last AND (known IS NULL OR c.stamp = known)),
        'refused', extract(epoch FROM other), 'loose', (SELECT coalesce(sum(l.seq), 0) FROM loose_heads l)
    ) FROM fleet f);
END $$;

-- As before, with `unknown`: of documents who asks gets to know what it may read.
CREATE OR REPLACE FUNCTION proxyfleet.heartbeat(of_node text, beat json) RETURNS json
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    reply jsonb := note_heartbeat(of_node, beat)::jsonb;
    wanted text[] := ARRAY(SELECT json_array_elements_text(beat -> 'duties'));
    taken jsonb := '[]';
    nodes jsonb := '[]';
BEGIN
    IF coalesce(reply ->> 'refused', reply ->> 'outdated') IS NULL AND cardinality(wanted) > 0 THEN
        taken := (SELECT coalesce(jsonb_agg(d), '[]') FROM take_duties(of_node, wanted, (beat ->> 'lease')::float8) d);
    END IF;
    IF taken ? 'node-events' THEN
        nodes := (SELECT coalesce(jsonb_agg(n), '[]') FROM node_changes((beat ->> 'down_after')::float8) n);
    END IF;
    RETURN (reply || jsonb_build_object('duties', taken, 'nodes', nodes, 'unknown', (
        SELECT coalesce(jsonb_agg(jsonb_build_array(d.collection, d.id, d.revision, d.level)), '[]') FROM (
            SELECT * FROM documents n WHERE n.level > 1 AND n.level > (beat ->> 'level')::int
            ORDER BY n.revision DESC LIMIT 100
        ) d
    )))::json;
END $$;
