-- With its heartbeat a node gets to know whether there is usage of others to read: in `usage` the `slot` in which totals
-- have changed last, and as `limits` whether another node has accounts with limits in use.
CREATE OR REPLACE FUNCTION proxyfleet.note_own_heartbeat(of_node text, beat json) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF is_edge() AND of_node IS DISTINCT FROM this_node() THEN
        RAISE EXCEPTION 'a node writes its own heartbeat alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM end_long_edges('5 s', '10 min');
    RETURN (write_heartbeat(of_node, beat)::jsonb || jsonb_build_object('usage', json_build_object(
        'slot', coalesce((SELECT max(t.slot) FROM usage_totals t), 0),
        'limits', EXISTS (
            SELECT FROM limits_in_use l WHERE l.node <> of_node AND cardinality(l.keys) > 0
                AND l.at > extract(epoch FROM clock_timestamp()) - 10
        )
    )))::json;
END $$;
