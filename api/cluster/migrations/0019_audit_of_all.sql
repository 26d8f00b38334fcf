-- The audit trails of all nodes as one list, by what entries say.

-- A field of an entry, cut to what an index can have; empty where there is none, and in a row that no program of ours
-- wrote: one that can't be read keeps no other from being found, and none from being written.
CREATE FUNCTION proxyfleet.audit_field(content text, path text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN coalesce(left(content::json #>> path, 500), '');
EXCEPTION WHEN OTHERS THEN
    RETURN '';
END $$;

CREATE INDEX audit_by_time ON proxyfleet.audit (
    (proxyfleet.audit_field(content, '{timestamp}')) COLLATE "C", node COLLATE "C", seq
);

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
