-- What the nodes of a fleet share. JSON keeps the bytes as they were written: `json`, never `jsonb`.
-- What nodes write often has room on its pages (fillfactor) and no index on what changes, so that updates stay there.

-- One row. Who changes anything holds its lock. `head` is the last commit, `history` the last revision; deletions up to
-- the commit `pruned_to`, and the commits before it, are forgotten.
CREATE TABLE proxyfleet.fleet (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL,
    head bigint NOT NULL,
    history bigint NOT NULL,
    pruned_to bigint NOT NULL,
    level integer NOT NULL DEFAULT 1,
    key_fingerprint text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10);

CREATE TABLE proxyfleet.commits (
    number bigint PRIMARY KEY,
    stamp uuid NOT NULL UNIQUE,
    node text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    objects integer NOT NULL,
    size bigint NOT NULL
);

-- `revision` is the commit that wrote it, and `place` where in it; `body` is NULL when that was its deletion.
CREATE TABLE proxyfleet.documents (
    collection text NOT NULL,
    id text NOT NULL,
    revision bigint NOT NULL,
    place integer NOT NULL,
    level integer NOT NULL DEFAULT 1,
    body json,
    PRIMARY KEY (collection, id)
);
CREATE INDEX documents_by_revision ON proxyfleet.documents (revision);

-- As in the embedded history: whole documents before and after, with their secrets sealed.
CREATE TABLE proxyfleet.revisions (
    number bigint PRIMARY KEY,
    "commit" bigint NOT NULL,
    node text NOT NULL,
    "timestamp" text NOT NULL,
    author text NOT NULL,
    restored bigint,
    undone bigint NOT NULL,
    created integer NOT NULL,
    updated integer NOT NULL,
    deleted integer NOT NULL,
    kinds text NOT NULL,
    size bigint NOT NULL
);
CREATE INDEX revisions_by_commit ON proxyfleet.revisions ("commit");
CREATE TABLE proxyfleet.revision_changes (
    number bigint NOT NULL,
    place integer NOT NULL,
    collection text NOT NULL,
    id text NOT NULL,
    name text,
    fields text NOT NULL,
    before bytea,
    after bytea,
    PRIMARY KEY (number, place)
);

-- A hash chain for each node; `commit` is the one that an entry goes with.
CREATE TABLE proxyfleet.audit (
    node text NOT NULL,
    seq bigint NOT NULL,
    "commit" bigint NOT NULL,
    content text NOT NULL,
    hash text NOT NULL,
    PRIMARY KEY (node, seq)
);
CREATE INDEX audit_by_commit ON proxyfleet.audit ("commit");

CREATE TABLE proxyfleet.heartbeats (
    node text PRIMARY KEY,
    at timestamptz NOT NULL,
    boot text NOT NULL,
    version text NOT NULL,
    level integer NOT NULL,
    "commit" bigint NOT NULL,
    stamp uuid,
    clock_offset double precision NOT NULL,
    problems json NOT NULL,
    settings json NOT NULL
) WITH (fillfactor = 50);

-- Sealed by the fleet's key, which is never here.
CREATE TABLE proxyfleet.secrets (
    name text PRIMARY KEY,
    sealed text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Who has taken a request with this mark, and what the response was, sealed, once there is one.
CREATE TABLE proxyfleet.idempotency (
    mark text PRIMARY KEY,
    node text NOT NULL,
    until timestamptz NOT NULL,
    response text
);
CREATE INDEX idempotency_by_end ON proxyfleet.idempotency (until);

-- The documents of a commit, but those that a later one has changed again.
CREATE FUNCTION proxyfleet.documents_of(of_commit bigint)
RETURNS TABLE (collection text, id text, place integer, body text)
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT d.collection, d.id, d.place, d.body::text FROM documents d WHERE d.revision = of_commit;
END $$;

-- What a replica at the commit `after` lacks, of one moment: a row for each commit, with as many as come to `most` bytes,
-- and at least one; one row without a number when there is none. `followed` says whether its last commit is in the
-- ledger with this stamp, or is there at all if the stamp isn't known. Entries of the audit trail are those of `reader`,
-- and `audited` is the last of them that the ledger has.
CREATE FUNCTION proxyfleet.changes_after(after bigint, known uuid, reader text, most bigint)
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

-- Take the lock of the fleet, and return what this replica lacks. VOLATILE, so that what is read is as new as the lock.
CREATE FUNCTION proxyfleet.begin_change(after bigint, known uuid, reader text, most bigint)
RETURNS TABLE (
    fleet uuid, head bigint, head_stamp uuid, pruned_to bigint, followed boolean, audited bigint,
    number bigint, stamp uuid, node text, at double precision, content text
)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    PERFORM 1 FROM fleet FOR UPDATE;
    RETURN QUERY SELECT * FROM changes_after(after, known, reader, most);
END $$;

-- Write a part of the commit `as_number` of a node, which `commit_change` makes one in the same transaction.
CREATE FUNCTION proxyfleet.write_change(as_number bigint, by_node text, content json) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    INSERT INTO documents (collection, id, revision, place, body)
        SELECT d ->> 1, d ->> 2, as_number, (d ->> 0)::int, (d ->> 3)::json
        FROM json_array_elements(content -> 'documents') d
    ON CONFLICT (collection, id) DO UPDATE
        SET revision = excluded.revision, place = excluded.place, body = excluded.body, level = DEFAULT;

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

-- Write the last part of a commit, and make it the head. It has to follow the commit with the stamp `after_stamp`;
-- otherwise SQLSTATE PF001. With `notify` those that listen get its number.
CREATE FUNCTION proxyfleet.commit_change(
    new_number bigint, new_stamp uuid, after_stamp uuid, by_node text, content json, of_objects int, of_bytes bigint,
    new_history bigint, notify boolean
) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    UPDATE fleet SET head = new_number, history = greatest(fleet.history, new_history)
    WHERE fleet.head = new_number - 1
        AND EXISTS (SELECT FROM commits WHERE number = new_number - 1 AND stamp = after_stamp);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the commit % does not follow the last one', new_number USING ERRCODE = 'PF001';
    END IF;
    PERFORM write_change(new_number, by_node, content);
    INSERT INTO commits (number, stamp, node, objects, size)
        VALUES (new_number, new_stamp, by_node, of_objects, of_bytes);
    IF notify THEN
        PERFORM pg_notify('proxyfleet', new_number::text);
    END IF;
END $$;

-- The number of the commit with this stamp; NULL when there is none, and there will be none: a transaction that may
-- still make it holds the lock.
CREATE FUNCTION proxyfleet.find_commit(wanted uuid) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    PERFORM 1 FROM fleet FOR UPDATE;
    RETURN (SELECT number FROM commits WHERE stamp = wanted);
END $$;
