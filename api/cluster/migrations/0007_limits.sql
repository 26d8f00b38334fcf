-- What nodes count now of accounts with limits: connections, requests of the last minute, and demand of bandwidth.
--
-- A node's row has all that is in use there, each time anew, so nothing is added up and a loss mends itself: the table
-- needs no log. `keys` are the numbers that stand for an account's counts or its bandwidth on every node.

CREATE UNLOGGED TABLE proxyfleet.limits_in_use (
    node text PRIMARY KEY,
    at double precision NOT NULL,
    keys bigint[] NOT NULL,
    connections bigint[] NOT NULL,
    requests bigint[] NOT NULL,
    bytes_in bigint[] NOT NULL,
    bytes_out bigint[] NOT NULL,
    flows_in bigint[] NOT NULL,
    flows_out bigint[] NOT NULL
) WITH (fillfactor = 50);

-- Take what is in use on a node now, and return the sums of the other nodes that have reported in the last ten seconds:
-- [key, connections, …] each. A bandwidth that isn't in use on this node is left out; connections and requests aren't,
-- since its first use has to find them known.
CREATE FUNCTION proxyfleet.report_limits(
    by_node text, of_keys bigint[], of_connections bigint[], of_requests bigint[],
    of_bytes_in bigint[], of_bytes_out bigint[], of_flows_in bigint[], of_flows_out bigint[]
) RETURNS TABLE (rows text)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    moment double precision := extract(epoch FROM clock_timestamp());
BEGIN
    PERFORM own_report(by_node, '{}', '{}');
    INSERT INTO limits_in_use VALUES (
        by_node, moment, of_keys, of_connections, of_requests, of_bytes_in, of_bytes_out, of_flows_in, of_flows_out
    ) ON CONFLICT (node) DO UPDATE SET
        at = excluded.at, keys = excluded.keys, connections = excluded.connections, requests = excluded.requests,
        bytes_in = excluded.bytes_in, bytes_out = excluded.bytes_out,
        flows_in = excluded.flows_in, flows_out = excluded.flows_out;
    RETURN QUERY SELECT json_agg(json_build_array(
            s.key, s.connections, s.requests, s.bytes_in, s.bytes_out, s.flows_in, s.flows_out
        ))::text
        FROM (
            SELECT u.key, sum(u.connections) AS connections, sum(u.requests) AS requests,
                sum(u.bytes_in) AS bytes_in, sum(u.bytes_out) AS bytes_out,
                sum(u.flows_in) AS flows_in, sum(u.flows_out) AS flows_out
            FROM limits_in_use l, unnest(
                    l.keys, l.connections, l.requests, l.bytes_in, l.bytes_out, l.flows_in, l.flows_out
                ) u (key, connections, requests, bytes_in, bytes_out, flows_in, flows_out)
                LEFT JOIN unnest(of_keys) mine (key) ON mine.key = u.key
            WHERE l.node <> by_node AND l.at > moment - 10
                AND (mine.key IS NOT NULL OR u.connections > 0 OR u.requests > 0)
            GROUP BY u.key
        ) s;
END $$;
