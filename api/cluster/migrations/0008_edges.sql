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
