-- End edges that have written for so long and wait for nothing themselves.
CREATE OR REPLACE FUNCTION proxyfleet.end_holding_edges(held interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN (
        SELECT count(pg_terminate_backend(a.pid))
        FROM pg_stat_activity a JOIN pg_auth_members m ON m.member = a.usesysid JOIN pg_roles g ON g.oid = m.roleid
        WHERE a.datname = current_database() AND g.rolname = group_of('edge') AND a.pid <> pg_backend_pid()
            AND a.backend_xid IS NOT NULL AND a.wait_event_type IS DISTINCT FROM 'Lock'
            AND clock_timestamp() - a.xact_start > held
    );
END $$;

-- What each report begins with. An edge reports what it has counted itself, and begins no new generation of totals: that
-- is a reset. It has one report at a time, and who reports ends what others hold on to: a report has 3 s.
CREATE OR REPLACE FUNCTION proxyfleet.own_report(by_node text, of_account text[], of_generation bigint[])
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    PERFORM end_holding_edges('2 s');
    IF NOT is_edge() THEN
        RETURN of_generation;
    END IF;
    IF by_node IS DISTINCT FROM this_node() THEN
        RAISE EXCEPTION 'a node reports its own usage alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO edge_reports VALUES (by_node) ON CONFLICT DO NOTHING;
    PERFORM FROM edge_reports e WHERE e.node = by_node FOR UPDATE;
    RETURN ARRAY(
        SELECT least(a.generation, coalesce(t.generation, 0))
        FROM unnest(of_account, of_generation) WITH ORDINALITY a (account, generation, place)
            LEFT JOIN usage_totals t ON t.account = a.account
        ORDER BY a.place
    );
END $$;
