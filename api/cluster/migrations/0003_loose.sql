-- What needs no order: sign-ins and credentials (`api.cluster.loose`), failed sign-ins and locks, last uses.

-- How many changes each node has made. Whoever writes for a node holds the lock of its row, so that its numbers appear
-- in their order, and a reader that knows the last one misses none.
CREATE TABLE proxyfleet.loose_heads (
    node text PRIMARY KEY,
    seq bigint NOT NULL
) WITH (fillfactor = 50);

-- `body` is NULL when it was deleted, which holds for good: the row stays until the object would be over. `node` and
-- `seq` are the last change.
CREATE TABLE proxyfleet.loose (
    collection text NOT NULL,
    id text NOT NULL,
    node text NOT NULL,
    seq bigint NOT NULL,
    until timestamptz NOT NULL,
    body json,
    PRIMARY KEY (collection, id)
);
CREATE INDEX loose_by_place ON proxyfleet.loose (node, seq);
CREATE INDEX loose_by_end ON proxyfleet.loose (until);

-- Take changes of a node: [collection, id, end in Unix time, digests that it may replace, body as text or null], sorted.
-- An empty digest stands for no object. Those are returned that are refused since there is another state.
CREATE FUNCTION proxyfleet.write_loose(by_node text, changes json, notify boolean)
RETURNS TABLE (collection text, id text, until double precision, content text)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    change json;
    number bigint;
    known loose%ROWTYPE;
BEGIN
    INSERT INTO loose_heads VALUES (by_node, json_array_length(changes))
        ON CONFLICT (node) DO UPDATE SET seq = loose_heads.seq + excluded.seq
        RETURNING seq - json_array_length(changes) INTO number;
    FOR change IN SELECT * FROM json_array_elements(changes) LOOP
        number := number + 1;
        -- a credential of an account that is gone is gone with it
        INSERT INTO loose SELECT change ->> 0, change ->> 1, by_node, number, to_timestamp((change ->> 2)::float8),
                CASE WHEN NOT EXISTS (
                    SELECT FROM documents d WHERE change ->> 0 = 'credentials' AND d.collection = 'accounts'
                        AND d.id = (change ->> 4)::json ->> 'account_id' AND d.body IS NULL
                ) THEN (change ->> 4)::json END
            WHERE change ->> 4 IS NULL OR (change -> 3)::jsonb ? ''
            ON CONFLICT (collection, id) DO NOTHING;
        SELECT * INTO known FROM loose l WHERE l.collection = change ->> 0 AND l.id = change ->> 1 FOR UPDATE;
        IF known.body::text IS NOT DISTINCT FROM change ->> 4 THEN
            CONTINUE;
        END IF;
        IF known.body IS NOT NULL AND (change ->> 4 IS NULL OR (change -> 3)::jsonb ? md5(known.body::text)) THEN
            UPDATE loose l SET node = by_node, seq = number, body = (change ->> 4)::json,
                until = greatest(l.until, to_timestamp((change ->> 2)::float8))
            WHERE l.collection = known.collection AND l.id = known.id;
            CONTINUE;
        END IF;
        RETURN QUERY SELECT change ->> 0, change ->> 1, coalesce(extract(epoch FROM known.until)::float8, 0.0),
            known.body::text;
    END LOOP;
    IF notify THEN
        PERFORM pg_notify('proxyfleet_loose', '');
    END IF;
END $$;

-- What a reader lacks that knows as much of each node as `known` says ({"node": number}): at most `most` of it, by node
-- and number. The first row has the numbers of all nodes and the locks of sign-ins (seconds by digest), and no object.
CREATE FUNCTION proxyfleet.read_loose(known json, most bigint)
RETURNS TABLE (
    heads text, locks text, node text, seq bigint,
    collection text, id text, until double precision, content text
)
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT
        (SELECT coalesce(json_object_agg(h.node, h.seq), '{}')::text FROM loose_heads h),
        (SELECT coalesce(json_object_agg(o.pair, extract(epoch FROM o.until - clock_timestamp())), '{}')::text
            FROM lockouts o WHERE o.until > clock_timestamp()),
        NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::float8, NULL::text;
    RETURN QUERY SELECT NULL::text, NULL::text, l.node, l.seq, l.collection, l.id,
            extract(epoch FROM l.until)::float8, l.body::text
        FROM loose_heads h JOIN loose l ON l.node = h.node AND l.seq > coalesce((known ->> h.node)::bigint, 0)
        ORDER BY l.node, l.seq LIMIT most;
END $$;

-- Failed sign-ins: of a user name and an address, as digests.
CREATE TABLE proxyfleet.failures (
    pair text NOT NULL,
    name text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX failures_by_pair ON proxyfleet.failures (pair, at);
CREATE INDEX failures_by_time ON proxyfleet.failures (at);
CREATE TABLE proxyfleet.lockouts (
    pair text PRIMARY KEY,
    name text NOT NULL,
    until timestamptz NOT NULL
);

-- Count a failure: seconds for which the pair is locked now, 0 when it isn't, and whether this one has locked it.
CREATE FUNCTION proxyfleet.count_failure(
    of_pair text, of_name text, "limit" int, within interval, lock interval
) RETURNS TABLE (locked double precision, "by" boolean)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    until_now timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(of_pair, 7075663082));
    SELECT o.until INTO until_now FROM lockouts o WHERE o.pair = of_pair AND o.until > clock_timestamp();
    IF FOUND THEN
        RETURN QUERY SELECT extract(epoch FROM until_now - clock_timestamp())::float8, false;
        RETURN;
    END IF;
    INSERT INTO failures (pair, name) VALUES (of_pair, of_name);
    IF (SELECT count(*) FROM failures f WHERE f.pair = of_pair AND f.at > clock_timestamp() - within) < "limit" THEN
        RETURN QUERY SELECT 0.0::float8, false;
        RETURN;
    END IF;
    DELETE FROM failures f WHERE f.pair = of_pair;
    INSERT INTO lockouts VALUES (of_pair, of_name, clock_timestamp() + lock)
        ON CONFLICT (pair) DO UPDATE SET until = excluded.until;
    PERFORM pg_notify('proxyfleet_loose', '');
    RETURN QUERY SELECT extract(epoch FROM lock)::float8, true;
END $$;

-- Forget the failures of these pairs, and of these names with their locks.
CREATE FUNCTION proxyfleet.forget_failures(pairs text[], names text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    DELETE FROM failures WHERE pair = ANY (pairs) OR name = ANY (names);
    DELETE FROM lockouts WHERE name = ANY (names);
END $$;

-- When keys and users were used last.
CREATE TABLE proxyfleet.last_used (
    kind text NOT NULL,
    id text NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (kind, id)
) WITH (fillfactor = 70);

-- Note uses ([kind, id, Unix time], sorted), the latest of each; those that are later than `after` and not among them.
CREATE FUNCTION proxyfleet.note_uses(uses json, after double precision)
RETURNS TABLE (kind text, id text, at double precision)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO last_used SELECT u ->> 0, u ->> 1, (u ->> 2)::float8 FROM json_array_elements(uses) u
        ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at WHERE last_used.at < excluded.at;
    RETURN QUERY SELECT u.kind, u.id, u.at FROM last_used u WHERE u.at > after;
END $$;

-- Take a mark for a node, or say that another one has it: then `response` is there once it has responded. A claim
-- without a response ends after `lease`, or when the same node claims it again.
CREATE FUNCTION proxyfleet.claim_mark(of_mark text, by_node text, lease interval)
RETURNS TABLE (taken boolean, response text)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO idempotency AS i (mark, node, until) VALUES (of_mark, by_node, clock_timestamp() + lease)
        ON CONFLICT (mark) DO UPDATE SET node = by_node, until = excluded.until, response = NULL
        WHERE i.until < clock_timestamp() OR (i.node = by_node AND i.response IS NULL);
    IF FOUND THEN
        RETURN QUERY SELECT true, NULL::text;
    ELSE
        RETURN QUERY SELECT false, i.response FROM idempotency i WHERE i.mark = of_mark;
    END IF;
END $$;

-- What a request with this mark has come to; NULL gives it back.
CREATE FUNCTION proxyfleet.settle_mark(of_mark text, by_node text, with_response text, keep interval) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF with_response IS NULL THEN
        DELETE FROM idempotency WHERE mark = of_mark AND node = by_node AND response IS NULL;
    ELSE
        INSERT INTO idempotency VALUES (of_mark, by_node, clock_timestamp() + keep, with_response)
            ON CONFLICT (mark) DO UPDATE SET response = with_response, until = excluded.until, node = by_node;
    END IF;
END $$;

-- Remove what is over for long. Any number of nodes may do so.
CREATE FUNCTION proxyfleet.forget_ended() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    DELETE FROM loose WHERE until < clock_timestamp() - interval '1 day';
    DELETE FROM failures WHERE at < clock_timestamp() - interval '1 hour';
    DELETE FROM lockouts WHERE until < clock_timestamp();
    DELETE FROM idempotency WHERE until < clock_timestamp();
END $$;
