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
