-- The heartbeat of a node: that it is there, what it has, and what is wrong with it.

-- `since` is when the installation that is this node has first been it: an API that starts again doesn't change that.
ALTER TABLE proxyfleet.heartbeats
    ADD COLUMN started_at timestamptz, ADD COLUMN since timestamptz;

-- Write what the node says of itself, ring at its own doorbell (the channel with its id), and return the head, whether
-- the last commit of its replica is in the ledger, and the time. Both are JSON objects, so that a later migration that
-- gives and gets more replaces the function and no caller. It has
--     boot: which installation it is, so that a copy of it is another; up_for: seconds since that one began;
--     version, level, commit, stamp, clock_offset, problems, settings.
-- While one installation beats, another one with its id is refused, and gets in `refused` when that one began. When it
-- is silent for 10 s another one may take its place, which it gets back if it began before.
CREATE FUNCTION proxyfleet.heartbeat(of_node text, beat json) RETURNS json
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    began timestamptz := clock_timestamp()
        - make_interval(secs => least(greatest((beat ->> 'up_for')::float8, 0), 1e9));
    last bigint := (beat ->> 'commit')::bigint;
    known uuid := (beat ->> 'stamp')::uuid;
    other timestamptz;
BEGIN
    INSERT INTO heartbeats AS h (
        node, at, boot, started_at, since, version, level, "commit", stamp, clock_offset, problems, settings
    ) VALUES (
        of_node, moment, beat ->> 'boot', began, began, beat ->> 'version', (beat ->> 'level')::int, last, known,
        (beat ->> 'clock_offset')::float8, beat -> 'problems', beat -> 'settings'
    ) ON CONFLICT (node) DO UPDATE SET
        at = excluded.at, boot = excluded.boot, version = excluded.version, level = excluded.level,
        started_at = began, since = CASE WHEN h.boot = excluded.boot THEN least(h.since, began) ELSE began END,
        "commit" = excluded."commit", stamp = excluded.stamp, clock_offset = excluded.clock_offset,
        problems = excluded.problems, settings = excluded.settings
    WHERE h.boot = excluded.boot OR h.at < excluded.at - interval '10 s' OR h.since > began;
    IF NOT FOUND THEN
        other := (SELECT h.since FROM heartbeats h WHERE h.node = of_node);
    ELSE
        PERFORM pg_notify('proxyfleet_' || of_node, '');
    END IF;
    RETURN (SELECT json_build_object(
        'fleet', f.id, 'head', f.head, 'level', f.level, 'now', extract(epoch FROM clock_timestamp()),
        'followed', EXISTS (SELECT FROM commits c WHERE c.number = last AND (known IS NULL OR c.stamp = known)),
        'refused', extract(epoch FROM other), 'loose', (SELECT coalesce(sum(l.seq), 0) FROM loose_heads l)
    ) FROM fleet f);
END $$;

-- The ledger has lost the last commits of a replica, which is at the commit `above`: an empty commit whose number is
-- beyond that, so that no number is given out again. All replicas are read anew then. Does nothing when the head is above.
CREATE FUNCTION proxyfleet.rise_above(above bigint, new_stamp uuid, by_node text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    UPDATE fleet SET head = above + 1000, pruned_to = above + 1000 WHERE head <= above;
    IF FOUND THEN
        DELETE FROM documents WHERE body IS NULL;
        INSERT INTO commits (number, stamp, node, objects, size) VALUES (above + 1000, new_stamp, by_node, 0, 0);
        PERFORM pg_notify('proxyfleet', (above + 1000)::text);
    END IF;
END $$;

-- Entries of a node's audit trail, [[seq, content, hash], …], that the ledger lacks and no commit brings.
CREATE FUNCTION proxyfleet.add_audit(of_node text, entries json) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    last bigint;
BEGIN
    SELECT head INTO last FROM fleet FOR UPDATE;
    INSERT INTO audit SELECT of_node, (a ->> 0)::bigint, last, a ->> 1, a ->> 2 FROM json_array_elements(entries) a
    ON CONFLICT DO NOTHING;
END $$;
