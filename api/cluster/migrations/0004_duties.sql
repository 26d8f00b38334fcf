-- What one node does for all, what one node announces, and files that one node makes for all.

-- A node has a duty until its end, which it moves on while it exchanges anything with the database.
CREATE TABLE proxyfleet.duties (
    name text PRIMARY KEY,
    node text NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Who announces an event of the fleet. Before `done` it is another node's after `until`: the first may have been killed
-- between the claim and the event.
CREATE TABLE proxyfleet.claims (
    key text COLLATE "C" PRIMARY KEY,
    node text NOT NULL,
    at timestamptz NOT NULL,
    until timestamptz NOT NULL,
    done boolean NOT NULL DEFAULT false
);

-- Files in parts, under their SHA-256.
CREATE TABLE proxyfleet.blobs (
    digest text NOT NULL,
    part integer NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    content bytea NOT NULL,
    PRIMARY KEY (digest, part)
);
ALTER TABLE proxyfleet.blobs ALTER content SET STORAGE EXTERNAL; -- not compressed: that takes longer than the network

-- Take or keep these duties for so many seconds; those that the node has now.
CREATE FUNCTION proxyfleet.take_duties(by_node text, wanted text[], seconds double precision) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN QUERY INSERT INTO duties AS d (name, node, until)
        SELECT w, by_node, clock_timestamp() + make_interval(secs => seconds) FROM unnest(wanted) w ORDER BY w
    ON CONFLICT (name) DO UPDATE SET node = excluded.node, until = excluded.until
        WHERE d.node = excluded.node OR d.until < clock_timestamp()
    RETURNING d.name;
END $$;

-- Give them back, for another node to take.
CREATE FUNCTION proxyfleet.give_back_duties(by_node text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    DELETE FROM duties WHERE node = by_node;
END $$;

-- Claim these for so many seconds: each with whether this node announces it (`ours`), and whether that is done.
CREATE FUNCTION proxyfleet.claim(by_node text, wanted text[], seconds double precision)
RETURNS TABLE (key text, ours boolean, done boolean)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO claims AS c (key, node, at, until)
        SELECT w, by_node, clock_timestamp(), clock_timestamp() + make_interval(secs => seconds)
        FROM (SELECT DISTINCT unnest(wanted) COLLATE "C" AS w ORDER BY w) each
    ON CONFLICT (key) DO UPDATE SET node = excluded.node, until = excluded.until
        WHERE NOT c.done AND (c.node = excluded.node OR c.until < clock_timestamp());
    RETURN QUERY SELECT c.key, c.node = by_node AND NOT c.done, c.done FROM claims c WHERE c.key = ANY (wanted);
END $$;

-- These were announced.
CREATE FUNCTION proxyfleet.claims_done(wanted text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    UPDATE claims SET done = true WHERE key = ANY (wanted);
END $$;

-- Events of nodes that wait for their claim: which node, what, its key, and since when (Unix seconds). A node is down
-- when it has not responded for `down_after` seconds, and up again when it has, and that it was down was published.
CREATE FUNCTION proxyfleet.node_changes(down_after double precision)
RETURNS TABLE (node text, event text, key text, since double precision)
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH beats AS (
        SELECT h.node, h.at, extract(epoch FROM h.at)::float8 AS since,
            h.at < clock_timestamp() - make_interval(secs => down_after) AS is_down,
            'node.down/' || h.node || '/' AS prefix
        FROM heartbeats h
    ), downs AS (
        SELECT b.node, b.since, max(c.key) AS key FROM beats b JOIN claims c
            ON c.key >= b.prefix COLLATE "C" AND c.key < (b.prefix || '~') COLLATE "C" AND c.done
        WHERE NOT b.is_down GROUP BY b.node, b.since
    )
    SELECT b.node, 'node.down', b.prefix || to_char(b.at AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS'), b.since
    FROM beats b WHERE b.is_down
        AND NOT EXISTS (
            SELECT FROM claims c WHERE c.done
                AND c.key = b.prefix || to_char(b.at AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')
        )
    UNION ALL
    SELECT d.node, 'node.up', replace(d.key, 'node.down/', 'node.up/'), d.since FROM downs d
    WHERE NOT EXISTS (SELECT FROM claims c WHERE c.done AND c.key = replace(d.key, 'node.down/', 'node.up/'));
END $$;

-- Forget what is past its end: claims and commits older than so many days, with the deletions in these, at most `most`
-- commits; marks of requests; and files that no document names, unless they are new. How many rows of each.
CREATE FUNCTION proxyfleet.prune(days double precision, most bigint)
RETURNS TABLE (of_commits bigint, of_deletions bigint, of_claims bigint, of_marks bigint, of_parts bigint)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    oldest timestamptz := clock_timestamp() - make_interval(secs => days * 86400);
    before bigint;
    target bigint;
BEGIN
    DELETE FROM idempotency WHERE until < clock_timestamp();
    GET DIAGNOSTICS of_marks = ROW_COUNT;
    DELETE FROM claims WHERE at < oldest;
    GET DIAGNOSTICS of_claims = ROW_COUNT;
    DELETE FROM blobs b WHERE b.at < clock_timestamp() - interval '10 min' AND NOT EXISTS (
        SELECT FROM documents d
        WHERE d.collection = 'list_states' AND d.body IS NOT NULL AND d.body ->> 'digest' = b.digest
    );
    GET DIAGNOSTICS of_parts = ROW_COUNT;
    of_commits := 0;
    of_deletions := 0;
    -- The last one that is forgotten keeps its row, since replicas that are there compare its stamp.
    SELECT f.pruned_to, max(c.number) INTO before, target FROM fleet f JOIN commits c
        ON c.number > f.pruned_to AND c.number <= f.pruned_to + most AND c.at < oldest
    GROUP BY f.pruned_to;
    IF target IS NOT NULL THEN
        UPDATE fleet SET pruned_to = target WHERE pruned_to < target;
        DELETE FROM documents WHERE revision > before AND revision <= target AND body IS NULL;
        GET DIAGNOSTICS of_deletions = ROW_COUNT;
        DELETE FROM commits WHERE number < target;
        GET DIAGNOSTICS of_commits = ROW_COUNT;
    END IF;
    RETURN NEXT;
END $$;

-- Delete revisions of the history beyond these limits, oldest first, but never the last; how many. `size` is bytes.
CREATE FUNCTION proxyfleet.prune_history(days integer, revisions bigint, size bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    keep_from bigint;
    removed bigint;
BEGIN
    SELECT min(n.number) INTO keep_from FROM (
        SELECT r.number, r."timestamp"::timestamptz AS at, row_number() OVER newest AS place, sum(r.size) OVER newest AS total
        FROM revisions r WINDOW newest AS (ORDER BY r.number DESC)
    ) n
    WHERE n.place = 1 OR (
        n.at >= clock_timestamp() - make_interval(days => prune_history.days)
        AND n.place <= prune_history.revisions AND n.total <= prune_history.size
    );
    DELETE FROM revision_changes c WHERE c.number < keep_from;
    DELETE FROM revisions r WHERE r.number < keep_from;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

-- The heartbeat takes and keeps the `duties` that the node wants, for `lease` seconds, and returns those that it has. An
-- installation that is refused gets none. Who has the duty `node-events` gets `nodes`, with `down_after` (`node_changes`).
ALTER FUNCTION proxyfleet.heartbeat(text, json) RENAME TO note_heartbeat;
CREATE FUNCTION proxyfleet.heartbeat(of_node text, beat json) RETURNS json
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    reply jsonb := note_heartbeat(of_node, beat)::jsonb;
    wanted text[] := ARRAY(SELECT json_array_elements_text(beat -> 'duties'));
    taken jsonb := '[]';
    nodes jsonb := '[]';
BEGIN
    IF reply ->> 'refused' IS NULL AND cardinality(wanted) > 0 THEN
        taken := (SELECT coalesce(jsonb_agg(d), '[]') FROM take_duties(of_node, wanted, (beat ->> 'lease')::float8) d);
    END IF;
    IF taken ? 'node-events' THEN
        nodes := (SELECT coalesce(jsonb_agg(n), '[]') FROM node_changes((beat ->> 'down_after')::float8) n);
    END IF;
    RETURN (reply || jsonb_build_object('duties', taken, 'nodes', nodes))::json;
END $$;
