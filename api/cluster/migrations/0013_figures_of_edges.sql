-- What an edge node reports is added to what others report, and comes to all of them: so it has bounds, by which no sum
-- is larger than its column and no figure is one that programs can't read. A stolen edge may claim any use within them.

-- Of an edge each figure has less than 2^48 and a report less than 2^58, moments are not in the future, and texts short;
-- its ledgers are a hundred at most.
ALTER FUNCTION proxyfleet.report_usage(
    text, text, bigint, bigint, integer, double precision, bigint[], integer[], text[], text[], bigint[], bigint[],
    bigint[], bigint[], bigint[], text[], bigint[], bigint[], text[], boolean[], double precision[], text[], text[]
) RENAME TO write_usage;
CREATE FUNCTION proxyfleet.report_usage(
    by_node text, of_ledger text, acknowledged bigint, upto bigint, settles integer, warning double precision,
    changed_number bigint[], changed_hour integer[], changed_account text[], changed_proxy text[],
    changed_in bigint[], changed_out bigint[], changed_requests bigint[], changed_milliseconds bigint[],
    changed_refusals bigint[],
    of_account text[], of_generation bigint[], of_quota bigint[], of_period text[], of_wants boolean[],
    of_last_seen double precision[], of_client text[], of_username text[]
) RETURNS TABLE (at double precision, number bigint, nodes integer, rows text)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    most double precision := extract(epoch FROM clock_timestamp()) + 60;
BEGIN
    IF is_edge() THEN
        IF EXISTS (
            SELECT FROM unnest(
                changed_in || changed_out || changed_requests || changed_milliseconds || changed_refusals
            ) f HAVING min(f) < 0 OR max(f) >= 1::bigint << 48 OR sum(f) >= 1::bigint << 58
        ) OR (
            SELECT count(*) >= 100 AND NOT coalesce(bool_or(l.ledger = of_ledger), false)
            FROM usage_ledgers l WHERE l.node = by_node
        ) THEN
            RAISE EXCEPTION 'no node has this usage' USING ERRCODE = 'check_violation';
        END IF;
        SELECT array_agg(least(s, most) ORDER BY n) INTO of_last_seen FROM unnest(of_last_seen) WITH ORDINALITY a (s, n);
        SELECT array_agg(left(s, 512) ORDER BY n) INTO of_client FROM unnest(of_client) WITH ORDINALITY a (s, n);
        SELECT array_agg(left(s, 512) ORDER BY n) INTO of_username FROM unnest(of_username) WITH ORDINALITY a (s, n);
    END IF;
    RETURN QUERY SELECT * FROM write_usage(
        by_node, of_ledger, acknowledged, upto, settles, warning, changed_number, changed_hour, changed_account,
        changed_proxy, changed_in, changed_out, changed_requests, changed_milliseconds, changed_refusals,
        of_account, of_generation, of_quota, of_period, of_wants, of_last_seen, of_client, of_username
    );
END $$;

-- Totals end at 2^60, so that the next report can be added.
CREATE FUNCTION proxyfleet.bound_totals() RETURNS trigger
LANGUAGE plpgsql SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    most constant bigint := 1::bigint << 60;
BEGIN
    NEW.day_in := least(NEW.day_in, most);
    NEW.day_out := least(NEW.day_out, most);
    NEW.week_in := least(NEW.week_in, most);
    NEW.week_out := least(NEW.week_out, most);
    NEW.month_in := least(NEW.month_in, most);
    NEW.month_out := least(NEW.month_out, most);
    NEW.total_in := least(NEW.total_in, most);
    NEW.total_out := least(NEW.total_out, most);
    RETURN NEW;
END $$;
CREATE TRIGGER bound_totals BEFORE UPDATE ON proxyfleet.usage_totals FOR EACH ROW
    WHEN (greatest(NEW.total_in, NEW.total_out) > 1152921504606846976) EXECUTE FUNCTION proxyfleet.bound_totals();

-- Limits: as many figures as keys, each of them there and small enough for the sum of all nodes.
ALTER TABLE proxyfleet.limits_in_use ADD CONSTRAINT figures CHECK (
    array_fill(cardinality(keys), ARRAY[6]) = ARRAY[
        cardinality(connections), cardinality(requests), cardinality(bytes_in), cardinality(bytes_out),
        cardinality(flows_in), cardinality(flows_out)
    ]
    AND array_position(keys || connections || requests || bytes_in || bytes_out || flows_in || flows_out, NULL) IS NULL
    AND 0 <= ALL (connections || requests || bytes_in || bytes_out || flows_in || flows_out)
    AND 1::bigint << 48 > ALL (connections || requests || bytes_in || bytes_out || flows_in || flows_out)
);
