-- More that an edge's role does not get by.

-- Before PostgreSQL 15 each role may give itself to others, who are in its group then. A full node that an edge has given
-- its role to stays a full one: else it would lose all proxies that don't run there.
CREATE OR REPLACE FUNCTION proxyfleet.is_edge() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF this_node() IS NULL THEN
        RETURN false;
    END IF;
    RETURN pg_has_role(session_user, group_of('edge'), 'MEMBER')
        AND NOT pg_has_role(session_user, group_of('full'), 'MEMBER');
END $$;

-- As before (0013); and ids, of which the product's have 20 characters, are short: they come to all nodes, a thousand at
-- once.
CREATE OR REPLACE FUNCTION proxyfleet.report_usage(
    by_node text, of_ledger text, acknowledged bigint, upto bigint, settles integer, warning double precision,
    changed_number bigint[], changed_hour integer[], changed_account text[], changed_proxy text[],
    changed_in bigint[], changed_out bigint[], changed_requests bigint[], changed_milliseconds bigint[],
    changed_refusals bigint[],
    of_account text[], of_generation bigint[], of_quota bigint[], of_period text[], of_wants boolean[],
    of_last_seen double precision[], of_client text[], of_username text[]
) RETURNS TABLE (at double precision, number bigint, nodes integer, rows text)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    most double precision := extract(epoch FROM clock_timestamp()) + 60;
BEGIN
    IF is_edge() THEN
        IF EXISTS (
            SELECT FROM unnest(
                changed_in || changed_out || changed_requests || changed_milliseconds || changed_refusals
            ) f HAVING min(f) < 0 OR max(f) >= 1::bigint << 48 OR sum(f) >= 1::bigint << 58
        ) OR EXISTS (
            SELECT FROM unnest(changed_account || changed_proxy || of_account || of_ledger) t WHERE octet_length(t) > 64
        ) OR (
            SELECT count(*) >= 100 AND NOT coalesce(bool_or(l.ledger = of_ledger), false)
            FROM usage_ledgers l WHERE l.node = by_node
        ) THEN
            RAISE EXCEPTION 'no node has this usage' USING ERRCODE = 'check_violation';
        END IF;
        SELECT array_agg(least(s, most) ORDER BY n) INTO of_last_seen FROM unnest(of_last_seen) WITH ORDINALITY a (s, n);
        SELECT array_agg(left(s, 512) ORDER BY n) INTO of_client FROM unnest(of_client) WITH ORDINALITY a (s, n);
        SELECT array_agg(left(s, 512) ORDER BY n) INTO of_username FROM unnest(of_username) WITH ORDINALITY a (s, n);
    END IF;
    RETURN QUERY SELECT * FROM write_usage(
        by_node, of_ledger, acknowledged, upto, settles, warning, changed_number, changed_hour, changed_account,
        changed_proxy, changed_in, changed_out, changed_requests, changed_milliseconds, changed_refusals,
        of_account, of_generation, of_quota, of_period, of_wants, of_last_seen, of_client, of_username
    );
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
