-- Move the entries of a node's audit trail, without the lock of the fleet. They go with a commit that has no number yet,
-- and is read in pages, with all entries: theirs is one that the node has, so none of its reads has them again.
CREATE OR REPLACE FUNCTION proxyfleet.move_audit(of_node text, of_commit bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    INSERT INTO audit SELECT of_node, s.seq, of_commit, s.content, s.hash FROM staged_audit s;
    DELETE FROM staged_audit;
END $$;

-- Move all rows that there are, as those of a commit of a node, behind `write_change` with the rest of it and in the same
-- transaction. `of_program` is the level of the program. Refuses what `write_change` refuses.
CREATE OR REPLACE FUNCTION proxyfleet.move_rows(as_number bigint, of_node text, of_revision bigint, of_program int) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    former text[] := (SELECT f.retired_keys FROM fleet f);
    newer text;
    below text;
BEGIN
    IF cardinality(former) > 0 THEN
        IF EXISTS (
            SELECT FROM staged_documents s, unnest(former) k WHERE s.body::text LIKE '%sealed:1:' || k || ':%'
        ) THEN
            RAISE EXCEPTION 'the fleet has a new key, and a secret was sealed with the former one: try again'
                USING ERRCODE = 'PF009';
        END IF;
    END IF;
    IF EXISTS (SELECT FROM documents d WHERE d.level > 1 AND d.level > of_program) THEN
        SELECT d.collection || '/' || d.id INTO newer
            FROM staged_documents s JOIN documents d ON d.collection = s.collection AND d.id = s.id
            WHERE d.level > of_program LIMIT 1;
        IF newer IS NOT NULL THEN
            RAISE EXCEPTION '%', newer USING ERRCODE = 'PF011';
        END IF;
    END IF;
    IF of_program > 1 THEN
        SELECT string_agg(n, ',') INTO below FROM nodes_below((SELECT max(s.level) FROM staged_documents s)) n;
        IF below IS NOT NULL THEN
            RAISE EXCEPTION '%', below USING ERRCODE = 'PF010';
        END IF;
    END IF;

    INSERT INTO documents (collection, id, revision, place, level, body)
        SELECT s.collection, s.id, as_number, s.place, s.level, s.body FROM staged_documents s
    ON CONFLICT (collection, id) DO UPDATE
        SET revision = excluded.revision, place = excluded.place, level = excluded.level, body = excluded.body;
    INSERT INTO revision_changes (number, place, collection, id, name, fields, before, after)
        SELECT coalesce(s.number, of_revision), s.place, s.collection, s.id, s.name, s.fields, s.before, s.after
        FROM staged_changes s;
    INSERT INTO audit SELECT of_node, s.seq, as_number, s.content, s.hash FROM staged_audit s ON CONFLICT DO NOTHING;
    DELETE FROM staged_documents;
    DELETE FROM staged_changes;
    DELETE FROM staged_audit;
END $$;
