-- With its heartbeat a node exchanges what it had statements of its own for. As before; and it gets in `key` and `locks`
-- what the fleet's key and the locks of sign-ins are, by which it knows whether there are others than before. Of locks an
-- edge sees none. With `uses` it brings last uses, and gets in `uses` those that are later than `uses_after` (`note_uses`).
CREATE OR REPLACE FUNCTION proxyfleet.heartbeat(of_node text, beat json) RETURNS json
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    reply jsonb := note_heartbeat(of_node, beat)::jsonb;
    wanted text[] := ARRAY(SELECT json_array_elements_text(beat -> 'duties'));
    taken jsonb := '[]';
    nodes jsonb := '[]';
    uses jsonb;
BEGIN
    IF coalesce(reply ->> 'refused', reply ->> 'outdated') IS NULL THEN
        IF cardinality(wanted) > 0 THEN
            taken := (SELECT coalesce(jsonb_agg(d), '[]') FROM take_duties(of_node, wanted, (beat ->> 'lease')::float8) d);
        END IF;
        IF beat -> 'uses' IS NOT NULL THEN
            uses := (
                SELECT coalesce(jsonb_agg(jsonb_build_array(u.kind, u.id, u.at)), '[]')
                FROM note_uses(beat -> 'uses', (beat ->> 'uses_after')::float8) u
            );
        END IF;
    END IF;
    IF taken ? 'node-events' THEN
        nodes := (SELECT coalesce(jsonb_agg(n), '[]') FROM node_changes((beat ->> 'down_after')::float8) n);
    END IF;
    RETURN (reply || jsonb_build_object(
        'duties', taken, 'nodes', nodes, 'uses', uses,
        'key', (SELECT jsonb_build_array(f.key_fingerprint, f.retired_keys, f.is_rekeying) FROM fleet f),
        'locks', (SELECT jsonb_build_array(count(*), max(o.until)) FROM lockouts o),
        'unknown', (
            SELECT coalesce(jsonb_agg(jsonb_build_array(d.collection, d.id, d.revision, d.level)), '[]') FROM (
                SELECT * FROM documents n WHERE n.level > 1 AND n.level > (beat ->> 'level')::int
                ORDER BY n.revision DESC LIMIT 100
            ) d
        )
    ))::json;
END $$;
