-- Another key that seals secrets (`api.cluster.keys`). `retired_keys` are the marks of those that were, the last one
-- last, and with `is_rekeying` something in these tables may still be sealed with that.
ALTER TABLE proxyfleet.fleet
    ADD COLUMN retired_keys text[] NOT NULL DEFAULT '{}', ADD COLUMN is_rekeying boolean NOT NULL DEFAULT false;

-- No document is written whose secret is sealed with a retired key: a node may have sealed it before the key was
-- replaced, and committed it after.
ALTER FUNCTION proxyfleet.write_change(bigint, text, json) RENAME TO write_parts;
CREATE FUNCTION proxyfleet.write_change(as_number bigint, by_node text, content json) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM fleet f, unnest(f.retired_keys) k WHERE content::text LIKE '%sealed:1:' || k || ':%') THEN
        RAISE EXCEPTION 'the fleet has a new key, and a secret was sealed with the former one: try again'
            USING ERRCODE = 'PF009';
    END IF;
    PERFORM write_parts(as_number, by_node, content);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
