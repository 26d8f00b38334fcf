-- Who may do what in the database: a role for each node, which is `pf_` and the node's id, in one of two groups.
--
-- Full nodes read and write everything, and bring the schema forward, with the rights of its owner (`run_as_owner`).
-- Edge nodes read what forwards, of proxies those that run there, and write what is their own. Functions run with the
-- rights of who calls them, but for those that say SECURITY DEFINER: so what an edge gets from all others is what
-- grants and policies let it read, and `set_rights` has these in one place. A fleet without roles (`--shared-role`) has
-- one role, the owner, which no policy concerns.

ALTER TABLE proxyfleet.fleet ADD COLUMN has_roles boolean NOT NULL DEFAULT false;

-- Full nodes read these of each edge node: no more than a node with very many proxies has to say.
ALTER TABLE proxyfleet.heartbeats ADD CONSTRAINT heartbeat_size CHECK (
    octet_length(problems::text) + octet_length(settings::text) <= 16777216
    AND octet_length(boot) + octet_length(version) <= 1000
);

-- The node whose role has signed in; NULL for any other role.
CREATE FUNCTION proxyfleet.this_node() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN CASE WHEN session_user::text LIKE 'pf\_nod\_%' THEN substr(session_user::text, 4) END;
END $$;

-- The roles of a server are for all its databases, so those of a fleet have its id in their names.
CREATE FUNCTION proxyfleet.group_of(as_role text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN (SELECT format('pf_%s_%s', as_role, left(replace(id::text, '-', ''), 12)) FROM fleet);
END $$;

CREATE FUNCTION proxyfleet.is_edge() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF this_node() IS NULL THEN
        RETURN false;
    END IF;
    RETURN pg_has_role(session_user, group_of('edge'), 'MEMBER');
END $$;

-- The document of the node whose role has signed in.
CREATE FUNCTION proxyfleet.own_document() RETURNS json
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN (SELECT body FROM documents WHERE collection = 'nodes' AND id = this_node());
END $$;

-- Whether a proxy with this field `nodes` runs on a node with this document: as `NodesOfProxy.selects`.
CREATE FUNCTION proxyfleet.runs_on(nodes json, node json) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF node IS NULL THEN
        RETURN false;
    END IF;
    RETURN nodes IS NULL OR coalesce((nodes ->> 'all')::boolean, false)
        OR (json_typeof(nodes -> 'names') = 'array'
            AND node ->> 'name' IN (SELECT json_array_elements_text(nodes -> 'names')))
        OR (json_typeof(nodes -> 'tags') = 'array' AND json_typeof(node -> 'tags') = 'array'
            AND EXISTS (
                SELECT FROM json_array_elements_text(nodes -> 'tags') t
                WHERE t IN (SELECT json_array_elements_text(node -> 'tags'))
            ));
END $$;

-- What an edge node gets with a commit beside what it may read of it, and other nodes don't: that a proxy does not run
-- there (any more) is a deletion there; and with another name or other tags of its own, all proxies are decided anew.
CREATE FUNCTION proxyfleet.edge_documents(of_commit bigint)
RETURNS TABLE (collection text, id text, place integer, body text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    own json;
    anew boolean;
BEGIN
    IF NOT is_edge() THEN
        RETURN;
    END IF;
    own := own_document();
    anew := EXISTS (
        SELECT FROM documents d WHERE d.collection = 'nodes' AND d.id = this_node() AND d.revision = of_commit
    );
    RETURN QUERY SELECT d.collection, d.id, d.place,
        CASE WHEN d.body IS NOT NULL AND runs_on(d.body -> 'nodes', own) THEN d.body::text END
    FROM documents d
    WHERE d.collection = 'proxies' AND (anew OR d.revision = of_commit)
        AND (d.revision <> of_commit OR (d.body IS NOT NULL AND NOT runs_on(d.body -> 'nodes', own)));
END $$;

-- The documents of a commit, as the one who asks may read them.
CREATE OR REPLACE FUNCTION proxyfleet.documents_of(of_commit bigint)
RETURNS TABLE (collection text, id text, place integer, body text)
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT d.collection, d.id, d.place, d.body::text FROM documents d WHERE d.revision = of_commit;
    IF this_node() IS NOT NULL THEN
        RETURN QUERY SELECT * FROM edge_documents(of_commit);
    END IF;
END $$;

-- An edge node reports what it has counted itself, and begins no new generation of totals: that is a reset.
CREATE OR REPLACE FUNCTION proxyfleet.own_report(by_node text, of_account text[], of_generation bigint[])
RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF NOT is_edge() THEN
        RETURN of_generation;
    END IF;
    IF by_node IS DISTINCT FROM this_node() THEN
        RAISE EXCEPTION 'a node reports its own usage alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN ARRAY(
        SELECT least(a.generation, coalesce(t.generation, 0))
        FROM unnest(of_account, of_generation) WITH ORDINALITY a (account, generation, place)
            LEFT JOIN usage_totals t ON t.account = a.account
        ORDER BY a.place
    );
END $$;

-- An edge node writes its own heartbeat, and that alone: who may update the table could lock it, and with it the
-- heartbeats of all nodes, and could be seen for ever.
ALTER FUNCTION proxyfleet.note_heartbeat(text, json) RENAME TO write_heartbeat;
CREATE FUNCTION proxyfleet.note_heartbeat(of_node text, beat json) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF is_edge() AND of_node IS DISTINCT FROM this_node() THEN
        RAISE EXCEPTION 'a node writes its own heartbeat alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN write_heartbeat(of_node, beat);
END $$;

-- Make the two groups, if need be, and say what they may do with each table and function that there is now. To be called
-- by the owner, once at the beginning and after each migration. Without `CREATEROLE` it raises an error.
CREATE FUNCTION proxyfleet.set_rights() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    full_group text := group_of('full');
    edge_group text := group_of('edge');
    each text;
    -- of an edge node: tables that it reads whole, and those of which it reads some rows, with which
    read text[] := ARRAY['fleet', 'commits', 'blobs', 'loose_heads'];
    partly text[] := ARRAY[
        'documents', 'revisions', 'revision_changes', 'audit', 'heartbeats', 'loose', 'lockouts'
    ];
    which text[] := ARRAY[
        $which$collection IN (
            'accounts', 'plans', 'credentials', 'lists', 'list_states', 'pools', 'policies', 'fetched_upstreams',
            'verdicts', 'nodes', 'settings'
        ) OR (collection = 'proxies'
            AND (body IS NULL OR runs_on(body -> 'nodes', (SELECT proxyfleet.own_document()))))$which$,
        'false', 'false', 'node = (SELECT proxyfleet.this_node())', 'node = (SELECT proxyfleet.this_node())',
        $which$collection = 'credentials'$which$, 'false'
    ];
    functions text[] := ARRAY[
        'this_node', 'group_of', 'is_edge', 'own_document', 'runs_on', 'edge_documents', 'documents_of', 'changes_after',
        'heartbeat', 'note_heartbeat', 'report_usage', 'report_limits', 'changed_usage', 'read_loose'
    ];
    -- What writes for an edge more than it may, or makes tables for a full node: it checks itself who calls it.
    with_rights_of_owner text[] := ARRAY['report_usage', 'report_limits', 'changed_usage', 'tend_usage'];
BEGIN
    FOREACH each IN ARRAY ARRAY[full_group, edge_group] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = each) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', each);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA proxyfleet TO %I', each);
    END LOOP;
    FOR each IN SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace = 'proxyfleet'::regnamespace AND p.proname = ANY (with_rights_of_owner)
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', each);
    END LOOP;
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA proxyfleet TO %I', full_group);
    EXECUTE format('GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA proxyfleet TO %I', full_group);
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA proxyfleet TO %I', full_group);

    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA proxyfleet FROM %I', edge_group);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM %I', edge_group);
    FOREACH each IN ARRAY read || partly LOOP
        IF to_regclass('proxyfleet.' || each) IS NOT NULL THEN
            EXECUTE format('GRANT SELECT ON proxyfleet.%I TO %I', each, edge_group);
        END IF;
    END LOOP;
    EXECUTE format('GRANT INSERT ON proxyfleet.audit TO %I', edge_group);
    FOR each IN SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace = 'proxyfleet'::regnamespace AND p.proname = ANY (functions)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', each, edge_group);
    END LOOP;
    FOR i IN 1 .. cardinality(partly) LOOP
        EXECUTE format('ALTER TABLE proxyfleet.%I ENABLE ROW LEVEL SECURITY', partly[i]);
        EXECUTE format('DROP POLICY IF EXISTS of_full ON proxyfleet.%I', partly[i]);
        EXECUTE format('DROP POLICY IF EXISTS of_edge ON proxyfleet.%I', partly[i]);
        EXECUTE format('CREATE POLICY of_full ON proxyfleet.%I TO %I USING (true) WITH CHECK (true)', partly[i], full_group);
        EXECUTE format('CREATE POLICY of_edge ON proxyfleet.%I TO %I USING (%s)', partly[i], edge_group, which[i]);
    END LOOP;
    UPDATE fleet SET has_roles = true WHERE NOT has_roles;
END $$;

-- The role of a node, which signs in with the password that this verifier is of; one that there was may sign in again.
CREATE FUNCTION proxyfleet.make_node_role(of_node text, as_role text, verifier text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    name text := 'pf_' || of_node;
BEGIN
    IF of_node !~ '^nod_[0-9a-z]+$' OR as_role NOT IN ('full', 'edge') OR verifier NOT LIKE 'SCRAM-SHA-256$%' THEN
        RAISE EXCEPTION 'no role can be made of this' USING ERRCODE = 'PF006';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
        EXECUTE format('CREATE ROLE %I', name);
    END IF;
    EXECUTE format('ALTER ROLE %I LOGIN CONNECTION LIMIT 16 PASSWORD %L', name, verifier);
    EXECUTE format('REVOKE %I, %I FROM %I', group_of('full'), group_of('edge'), name);
    EXECUTE format('GRANT %I TO %I', group_of(as_role), name);
    EXECUTE format('GRANT %I TO %I', name, current_user); -- who ends its backends has to be in it
END $$;

-- The role of a node can't sign in any more, and has no rights. What is connected is ended by `end_backends`, when this
-- is committed: before it could connect again.
CREATE FUNCTION proxyfleet.remove_node(of_node text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    name text := 'pf_' || of_node;
BEGIN
    IF of_node LIKE 'nod\_%' AND EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
        EXECUTE format('ALTER ROLE %I NOLOGIN', name);
        EXECUTE format('REVOKE %I, %I FROM %I', group_of('full'), group_of('edge'), name);
    END IF;
    DELETE FROM heartbeats WHERE node = of_node;
    DELETE FROM duties WHERE node = of_node;
    DELETE FROM leases WHERE node = of_node;
    DELETE FROM limits_in_use WHERE node = of_node;
END $$;

CREATE FUNCTION proxyfleet.end_backends(of_node text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN (
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE usename = 'pf_' || of_node AND of_node LIKE 'nod\_%' AND pid <> pg_backend_pid()
    );
END $$;

-- Bring the schema forward, for full nodes, which do not own it.
CREATE FUNCTION proxyfleet.run_as_owner(statements text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    EXECUTE statements;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
