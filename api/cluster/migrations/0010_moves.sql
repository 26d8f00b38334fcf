-- The fleet's database was copied to another one (`api.cluster.moving`), and `moved_at` is when that took its place: from
-- then on no commit is made here, and the heartbeat tells each node where the other one is. What it gets is sealed with
-- the fleet's key, which is in no database.
ALTER TABLE proxyfleet.fleet ADD COLUMN moved_at timestamptz;
CREATE TABLE proxyfleet.moves (
    node text PRIMARY KEY,
    sealed text NOT NULL
);

CREATE FUNCTION proxyfleet.refuse_moved() RETURNS trigger
LANGUAGE plpgsql SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the fleet has another database now: this node follows it in a moment' USING ERRCODE = 'PF012';
END $$;
CREATE TRIGGER moved BEFORE UPDATE ON proxyfleet.fleet FOR EACH ROW
    WHEN (OLD.moved_at IS NOT NULL AND NEW.moved_at IS NOT NULL) EXECUTE FUNCTION proxyfleet.refuse_moved();

ALTER FUNCTION proxyfleet.note_heartbeat(text, json) RENAME TO note_own_heartbeat;
CREATE FUNCTION proxyfleet.note_heartbeat(of_node text, beat json) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN (note_own_heartbeat(of_node, beat)::jsonb || jsonb_build_object(
        'moved', (SELECT m.sealed FROM moves m JOIN fleet f ON f.moved_at IS NOT NULL WHERE m.node = of_node)
    ))::json;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
