-- What a role of a node may begin for others, and what an edge's role may fill.

-- A move of the fleet (0010) is ended by the role that has left word for the nodes, or by none: else it would lead them to
-- one database, and what was brought forward were another. Another node may take it over, by leaving word itself, until
-- it is done; then nothing of it is altered by who has not done it. The owner of the schema may do all of it.
ALTER TABLE proxyfleet.moves ADD COLUMN by_role text;
CREATE FUNCTION proxyfleet.is_move_of_another() RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN this_node() IS NOT NULL AND EXISTS (SELECT FROM moves m WHERE m.by_role IS DISTINCT FROM session_user::text);
END $$;
CREATE FUNCTION proxyfleet.refuse_move_of_another() RETURNS trigger
LANGUAGE plpgsql SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF is_move_of_another() THEN
        RAISE EXCEPTION 'another node moves the fleet to another database' USING ERRCODE = 'PF018';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER moved_by_role BEFORE UPDATE OF moved_at ON proxyfleet.fleet FOR EACH ROW
    WHEN ((OLD.moved_at IS NULL) <> (NEW.moved_at IS NULL)) EXECUTE FUNCTION proxyfleet.refuse_move_of_another();
CREATE FUNCTION proxyfleet.leave_word() RETURNS trigger
LANGUAGE plpgsql SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM fleet f WHERE f.moved_at IS NOT NULL) AND is_move_of_another() THEN
        RAISE EXCEPTION 'another node has moved the fleet to another database' USING ERRCODE = 'PF018';
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    NEW.by_role := session_user;
    RETURN NEW;
END $$;
CREATE TRIGGER left_by_role BEFORE INSERT OR UPDATE OR DELETE ON proxyfleet.moves FOR EACH ROW
    EXECUTE FUNCTION proxyfleet.leave_word();

-- What an edge may write to the disk of the server beside its tables: nothing that the owner can forbid. Temporary tables
-- are forbidden to all roles but the owner of the database, since each role has what PUBLIC has. Files of sorts are bound
-- where the owner may do that: a superuser, or by `GRANT SET ON PARAMETER temp_file_limit`, from PostgreSQL 15 on. All
-- that a role may set for itself bounds it in nothing: deadlines, memory.
CREATE FUNCTION proxyfleet.bound_edge(role_name text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER ROLE %I SET temp_file_limit = ''1GB''', role_name);
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;

ALTER FUNCTION proxyfleet.set_rights() RENAME TO set_rights_of_functions;
CREATE FUNCTION proxyfleet.set_rights() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    PERFORM set_rights_of_functions();
    IF (SELECT pg_has_role(d.datdba, 'USAGE') FROM pg_database d WHERE d.datname = current_database()) THEN
        EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    END IF;
    PERFORM bound_edge(e.rolname) FROM pg_roles e
        JOIN pg_auth_members m ON m.member = e.oid JOIN pg_roles g ON g.oid = m.roleid AND g.rolname = group_of('edge')
        WHERE e.rolname LIKE 'pf\_nod\_%';
END $$;

ALTER FUNCTION proxyfleet.make_node_role(text, text, text) RENAME TO make_role;
CREATE FUNCTION proxyfleet.make_node_role(of_node text, as_role text, verifier text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    PERFORM make_role(of_node, as_role, verifier);
    IF as_role = 'edge' THEN
        PERFORM bound_edge('pf_' || of_node);
    END IF;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
