-- What an edge node fills comes to all nodes, or makes all wait: so it has bounds, as its figures have.

-- The keys in which an edge counts are two for each account at most, and those that are gone meanwhile.
ALTER FUNCTION proxyfleet.report_limits(text, bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[])
    RENAME TO write_limits;
CREATE FUNCTION proxyfleet.report_limits(
    by_node text, of_keys bigint[], of_connections bigint[], of_requests bigint[],
    of_bytes_in bigint[], of_bytes_out bigint[], of_flows_in bigint[], of_flows_out bigint[]
) RETURNS TABLE (rows text)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF cardinality(of_keys) > 1000 AND is_edge() THEN
        IF cardinality(of_keys) > 1000 + 2 * (SELECT count(*) FROM documents d WHERE d.collection = 'accounts') THEN
            RAISE EXCEPTION 'no node has so many accounts in use' USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM write_limits(
        by_node, of_keys, of_connections, of_requests, of_bytes_in, of_bytes_out, of_flows_in, of_flows_out
    );
END $$;

-- As before; and while notifications fill more than a hundredth of their queue, what reads is ended as early as what
-- writes: no change commits when it is full, and it keeps what came since the oldest transaction of one that listens.
CREATE OR REPLACE FUNCTION proxyfleet.end_long_edges(writing interval, reading interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    readers interval := CASE WHEN pg_notification_queue_usage() > 0.01 THEN writing ELSE reading END;
BEGIN
    RETURN (
        SELECT count(pg_terminate_backend(a.pid))
        FROM pg_stat_activity a JOIN pg_auth_members m ON m.member = a.usesysid JOIN pg_roles g ON g.oid = m.roleid
        WHERE a.datname = current_database() AND g.rolname = group_of('edge') AND a.pid <> pg_backend_pid()
            AND (clock_timestamp() - a.xact_start > CASE WHEN a.backend_xid IS NULL THEN readers ELSE writing END
                OR a.pid IN (SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory'))
    );
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
