-- What an edge node may do by itself, and for how long.

-- Entries of a node's audit trail, [[seq, content, hash], …], that the ledger lacks and no commit brings. A full node
-- takes the lock of the fleet, since a commit of its own could bring the same ones at this moment; an edge node commits
-- nothing, and sends its own alone.
CREATE OR REPLACE FUNCTION proxyfleet.add_audit(of_node text, entries json) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF NOT is_edge() THEN
        PERFORM FROM fleet FOR UPDATE;
    ELSIF of_node IS DISTINCT FROM this_node() THEN
        RAISE EXCEPTION 'a node writes its own audit trail alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO audit SELECT of_node, (a ->> 0)::bigint, (SELECT head FROM fleet), a ->> 1, a ->> 2
        FROM json_array_elements(entries) a
    ON CONFLICT DO NOTHING;
END $$;

-- The rights of before, with what is different since: an edge node sends its audit trail by that function alone.
ALTER FUNCTION proxyfleet.set_rights() RENAME TO set_rights_of_tables;
CREATE FUNCTION proxyfleet.set_rights() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    PERFORM set_rights_of_tables();
    EXECUTE format('REVOKE INSERT ON proxyfleet.audit FROM %I', group_of('edge'));
    EXECUTE format('GRANT EXECUTE ON FUNCTION proxyfleet.add_audit(text, json) TO %I', group_of('edge'));
END $$;

-- End connections of edge nodes for which others may have to wait: with a transaction that has written something for
-- longer than `writing`, or that has read for longer than `reading` (what is deleted meanwhile stays), or with a lock
-- that is asked for by a number, of which an edge needs none. Each role may set all deadlines of its sessions as it
-- likes, so they bound a stolen one in nothing. By the owner, who is in the role of each node.
CREATE FUNCTION proxyfleet.end_long_edges(writing interval, reading interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN (
        SELECT count(pg_terminate_backend(a.pid))
        FROM pg_stat_activity a JOIN pg_auth_members m ON m.member = a.usesysid JOIN pg_roles g ON g.oid = m.roleid
        WHERE a.datname = current_database() AND g.rolname = group_of('edge') AND a.pid <> pg_backend_pid()
            AND (clock_timestamp() - a.xact_start > CASE WHEN a.backend_xid IS NULL THEN reading ELSE writing END
                OR a.pid IN (SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory'))
    );
END $$;

-- Each heartbeat ends what edges keep open. Five seconds are longer than any call of a node has.
CREATE OR REPLACE FUNCTION proxyfleet.note_heartbeat(of_node text, beat json) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF is_edge() AND of_node IS DISTINCT FROM this_node() THEN
        RAISE EXCEPTION 'a node writes its own heartbeat alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM end_long_edges('5 s', '10 min');
    RETURN write_heartbeat(of_node, beat);
END $$;

-- As before, but with the locks of `usage_ledgers` before all others, as reports take them.
ALTER FUNCTION proxyfleet.tend_usage() RENAME TO tend_locked_usage;
CREATE FUNCTION proxyfleet.tend_usage() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF pg_try_advisory_xact_lock(7075663082) THEN
        PERFORM FROM usage_ledgers l ORDER BY l.node, l.ledger FOR UPDATE;
        PERFORM tend_locked_usage();
    END IF;
END $$;

-- And the last uses of what there is no more.
ALTER FUNCTION proxyfleet.forget_ended() RENAME TO forget_ended_by_time;
CREATE FUNCTION proxyfleet.forget_ended() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    PERFORM forget_ended_by_time();
    DELETE FROM last_used u WHERE NOT EXISTS (
        SELECT FROM documents d WHERE d.collection = u.kind AND d.id = u.id AND d.body IS NOT NULL
    );
END $$;
