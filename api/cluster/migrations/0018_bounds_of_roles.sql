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

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
