-- Leases that last while the next one is on its way, also where much is used, and reports that wait for less.

-- The lease of a node, of what is left and not leased to others (`free`): half by its part of the use in the last minute
-- and half evenly. At most a hundredth of the quota or 64 MiB; or, if that is more, what it uses in five seconds, of which
-- it asks for the next at half. So much leaves half of `free` to nodes that come to use the account.
CREATE FUNCTION proxyfleet.lease_of(
    quota bigint, free numeric, nodes bigint, rate double precision, others_rate double precision,
    per_second double precision
) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT least(
        free,
        greatest(262144, least(quota / 100, 67108864), least(5 * per_second, free / 2)),
        greatest(262144, floor(free * 0.5 * (
            1.0 / (1 + nodes) + coalesce(rate / nullif(rate + others_rate, 0), 1.0 / (1 + nodes))
        )))
    )::bigint
$$;

-- As before, with the lease by that: `per_second` is what is reported by the time since the last one. It is planned once
-- for a connection: others wait for the locks of its accounts meanwhile.
CREATE OR REPLACE FUNCTION proxyfleet.write_usage(
    by_node text, of_ledger text, acknowledged bigint, upto bigint, settles integer, warning double precision,
    changed_number bigint[], changed_hour integer[], changed_account text[], changed_proxy text[],
    changed_in bigint[], changed_out bigint[], changed_requests bigint[], changed_milliseconds bigint[],
    changed_refusals bigint[],
    of_account text[], of_generation bigint[], of_quota bigint[], of_period text[], of_wants boolean[],
    of_last_seen double precision[], of_client text[], of_username text[]
) RETURNS TABLE (at double precision, number bigint, nodes integer, rows text)
LANGUAGE plpgsql VOLATILE
SET search_path = proxyfleet, pg_temp SET enable_seqscan = off SET enable_nestloop = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
-- How many accounts there are is not known when it is planned: what has their number of rows is read by one scan of an
-- index, and joined by hashes, unless by LATERAL.
#variable_conflict use_column
DECLARE
    moment double precision := extract(epoch FROM clock_timestamp());
    known bigint;
    known_settled integer;
    begins record;
    reply text;
BEGIN
    of_generation := own_report(by_node, of_account, of_generation);
    INSERT INTO usage_ledgers (node, ledger) VALUES (by_node, of_ledger) ON CONFLICT DO NOTHING;
    SELECT l.number, l.settled INTO known, known_settled
        FROM usage_ledgers l WHERE l.node = by_node AND l.ledger = of_ledger FOR UPDATE;
    IF known < acknowledged THEN
        RETURN QUERY SELECT moment, known, 0, NULL::text;
        RETURN;
    END IF;
    begins := usage_hour();

    -- Who reports the same accounts at the same time waits here, in one order for all.
    IF (SELECT count(*) FROM usage_totals t WHERE t.account = ANY (of_account)) < cardinality(of_account) THEN
        INSERT INTO usage_totals (account, slot)
            SELECT DISTINCT a, floor(moment / 10)::bigint FROM unnest(of_account) a ORDER BY 1 ON CONFLICT DO NOTHING;
    END IF;
    PERFORM FROM usage_totals t WHERE t.account = ANY (of_account) ORDER BY t.account FOR NO KEY UPDATE;

    WITH given AS MATERIALIZED (
        SELECT * FROM unnest(
            changed_number, changed_hour, changed_account, changed_proxy, changed_in, changed_out, changed_requests,
            changed_milliseconds, changed_refusals
        ) r (number, hour, account, proxy, bytes_in, bytes_out, requests, milliseconds, refusals)
        WHERE r.number > known OR r.hour >= known_settled
    ), written AS (
        INSERT INTO usage_hours AS h
            SELECT hour, account, proxy, by_node, of_ledger, bytes_in, bytes_out, requests, milliseconds, refusals
            FROM given
        ON CONFLICT (hour, account, proxy, node, ledger) DO UPDATE SET
            bytes_in = greatest(h.bytes_in, excluded.bytes_in),
            bytes_out = greatest(h.bytes_out, excluded.bytes_out),
            requests = greatest(h.requests, excluded.requests),
            milliseconds = greatest(h.milliseconds, excluded.milliseconds),
            refusals = greatest(h.refusals, excluded.refusals)
    ), differences AS (
        SELECT g.account, g.hour, greatest(g.bytes_in - coalesce(h.bytes_in, 0), 0) AS more_in,
            greatest(g.bytes_out - coalesce(h.bytes_out, 0), 0) AS more_out
        FROM given g LEFT JOIN LATERAL (
            SELECT * FROM usage_hours h WHERE h.hour = g.hour AND h.account = g.account AND h.proxy = g.proxy
                AND h.node = by_node AND h.ledger = of_ledger LIMIT 1
        ) h ON true
    ), sums AS MATERIALIZED (
        SELECT account, sum(more_in)::bigint AS total_in, sum(more_out)::bigint AS total_out,
            coalesce(sum(more_in) FILTER (WHERE hour >= begins.day), 0)::bigint AS day_in,
            coalesce(sum(more_out) FILTER (WHERE hour >= begins.day), 0)::bigint AS day_out,
            coalesce(sum(more_in) FILTER (WHERE hour >= begins.week), 0)::bigint AS week_in,
            coalesce(sum(more_out) FILTER (WHERE hour >= begins.week), 0)::bigint AS week_out,
            coalesce(sum(more_in) FILTER (WHERE hour >= begins.month), 0)::bigint AS month_in,
            coalesce(sum(more_out) FILTER (WHERE hour >= begins.month), 0)::bigint AS month_out
        FROM differences GROUP BY account
    ), asked AS MATERIALIZED (
        SELECT * FROM unnest(
            of_account, of_generation, of_quota, of_period, of_wants, of_last_seen, of_client, of_username
        ) a (account, generation, quota, period, wants, last_seen, client, username)
    ), counted AS MATERIALIZED (
        -- `old` and `new`: whether what was here before counts, and whether what is reported does.
        SELECT t AS before, a.*, coalesce(s.total_in + s.total_out, 0) AS more,
            (old AND t.day = begins.day)::int * t.day_in + coalesce(new::int * s.day_in, 0) AS day_in,
            (old AND t.day = begins.day)::int * t.day_out + coalesce(new::int * s.day_out, 0) AS day_out,
            (old AND t.week = begins.week)::int * t.week_in + coalesce(new::int * s.week_in, 0) AS week_in,
            (old AND t.week = begins.week)::int * t.week_out + coalesce(new::int * s.week_out, 0) AS week_out,
            (old AND t.month = begins.month)::int * t.month_in + coalesce(new::int * s.month_in, 0) AS month_in,
            (old AND t.month = begins.month)::int * t.month_out + coalesce(new::int * s.month_out, 0) AS month_out,
            old::int * t.total_in + coalesce(new::int * s.total_in, 0) AS total_in,
            old::int * t.total_out + coalesce(new::int * s.total_out, 0) AS total_out
        FROM asked a LEFT JOIN sums s ON s.account = a.account
            JOIN usage_totals t ON t.account = a.account AND t.account = ANY (of_account),
            LATERAL (SELECT t.generation >= a.generation AS old, t.generation <= a.generation AS new) g
    ), used AS MATERIALIZED (
        SELECT *,
            CASE period WHEN 'day' THEN day_in + day_out WHEN 'week' THEN week_in + week_out
                WHEN 'month' THEN month_in + month_out ELSE total_in + total_out END AS used,
            CASE period WHEN 'day' THEN begins.day WHEN 'week' THEN begins.week WHEN 'month' THEN begins.month
                ELSE 0 END AS since
        FROM counted
    ), updated AS (
        UPDATE usage_totals t SET
            generation = greatest(t.generation, u.generation),
            day = begins.day, day_in = u.day_in, day_out = u.day_out,
            week = begins.week, week_in = u.week_in, week_out = u.week_out,
            month = begins.month, month_in = u.month_in, month_out = u.month_out,
            total_in = u.total_in, total_out = u.total_out,
            last_seen = greatest(t.last_seen, u.last_seen),
            client = CASE WHEN u.last_seen > t.last_seen THEN u.client ELSE t.client END,
            username = CASE WHEN u.last_seen > t.last_seen THEN u.username ELSE t.username END,
            warned = CASE WHEN warns THEN u.since ELSE t.warned END,
            warned_by = CASE WHEN warns THEN by_node ELSE t.warned_by END,
            reached = CASE WHEN reaches THEN u.since ELSE t.reached END,
            reached_by = CASE WHEN reaches THEN by_node ELSE t.reached_by END,
            slot = floor(moment / 10)::bigint
        FROM used u, LATERAL (
            SELECT u.quota > 0 AND warning > 0 AND u.used >= u.quota * warning AND (u.before).warned <> u.since AS warns,
                u.quota > 0 AND u.used >= u.quota AND (u.before).reached <> u.since AS reaches
        ) n
        WHERE t.account = u.account AND t.account = ANY (of_account)
        RETURNING t.account, usage_row(t) AS row, t.warned = u.since AND t.warned_by = by_node AS warns,
            t.reached = u.since AND t.reached_by = by_node AS reaches
    ), leased AS MATERIALIZED (
        SELECT e.account, e.node = by_node AS own, sum(e.bytes) AS bytes, count(*) AS nodes, max(e.at) AS at,
            sum(e.rate * exp(greatest(least(e.at - moment, 0) / 60, -20))) AS rate
        FROM leases e WHERE e.account = ANY (of_account) AND (e.node = by_node OR e.at > moment - 60)
        GROUP BY e.account, e.node = by_node
    ), lent AS MATERIALIZED (
        SELECT u.account, u.wants, u.quota, coalesce(o.bytes, 0) AS others,
            greatest(u.quota - u.used - coalesce(o.bytes, 0), 0) AS free,
            coalesce(o.rate, 0) AS others_rate, coalesce(o.nodes, 0) AS nodes, coalesce(l.rate, 0) + u.more AS rate,
            u.more / greatest(moment - coalesce(l.at, 0), 0.5) AS per_second
        FROM used u LEFT JOIN leased l ON l.account = u.account AND l.own
            LEFT JOIN leased o ON o.account = u.account AND NOT o.own
        WHERE u.quota > 0
    ), granted AS (
        INSERT INTO leases AS l
            SELECT account, by_node,
                CASE WHEN wants THEN lease_of(quota, free, nodes, rate, others_rate, per_second) ELSE 0 END,
                rate, CASE WHEN wants THEN moment ELSE 0 END
            FROM lent
        ON CONFLICT (account, node) DO UPDATE SET bytes = excluded.bytes, rate = excluded.rate, at = excluded.at
        RETURNING l.account, l.bytes
    )
    SELECT json_agg(json_build_array(d.row, g.bytes, g.bytes + n.others, d.warns, d.reaches))::text INTO reply
    FROM updated d LEFT JOIN granted g ON g.account = d.account LEFT JOIN lent n ON n.account = d.account;

    UPDATE usage_ledgers l SET number = greatest(l.number, upto), settled = greatest(l.settled, settles), at = moment
        WHERE l.node = by_node AND l.ledger = of_ledger;
    RETURN QUERY SELECT moment, greatest(known, upto),
        greatest((SELECT count(*) FROM documents d WHERE d.collection = 'nodes' AND d.body IS NOT NULL)::int, 1),
        coalesce(reply, '[]');
END $$;

-- Add up the hours of one ledger that are older than a week; whether there were any. Its node's reports wait meanwhile,
-- and no other's.
CREATE FUNCTION proxyfleet.add_up_usage() RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    last integer := (SELECT c.hour - 168 FROM usage_clock c); -- and no lock of it, which reports take behind their ledger's
    one record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7075663082) THEN
        RETURN false;
    END IF;
    SELECT l.node, l.ledger, l.added, least(l.settled, last) AS until INTO one
        FROM usage_ledgers l WHERE least(l.settled, last) > l.added ORDER BY l.node, l.ledger LIMIT 1 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WITH gone AS (
        DELETE FROM usage_hours h WHERE h.hour >= one.added AND h.hour < one.until
            AND h.node = one.node AND h.ledger = one.ledger RETURNING h.*
    ), by_hour AS (
        INSERT INTO usage_hours AS h
            SELECT hour, account, proxy, '', '', bytes_in, bytes_out, requests, milliseconds, refusals FROM gone
        ON CONFLICT (hour, account, proxy, node, ledger) DO UPDATE SET
            bytes_in = h.bytes_in + excluded.bytes_in, bytes_out = h.bytes_out + excluded.bytes_out,
            requests = h.requests + excluded.requests, milliseconds = h.milliseconds + excluded.milliseconds,
            refusals = h.refusals + excluded.refusals
    )
    INSERT INTO usage_days AS d
        SELECT hour / 24, account, proxy, one.node, sum(bytes_in), sum(bytes_out), sum(requests),
            sum(milliseconds), sum(refusals)
        FROM gone GROUP BY hour / 24, account, proxy
    ON CONFLICT (day, account, proxy, node) DO UPDATE SET
        bytes_in = d.bytes_in + excluded.bytes_in, bytes_out = d.bytes_out + excluded.bytes_out,
        requests = d.requests + excluded.requests, milliseconds = d.milliseconds + excluded.milliseconds,
        refusals = d.refusals + excluded.refusals;
    UPDATE usage_ledgers l SET added = one.until WHERE l.node = one.node AND l.ledger = one.ledger;
    RETURN true;
END $$;

-- As before, but for the hours that are added up: make the partitions of this month and the next, and drop what is older
-- than 400 days. It locks no ledger unless it makes or drops a partition: then all, before all other locks, as reports do.
CREATE OR REPLACE FUNCTION proxyfleet.tend_usage() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    begins record;
    first timestamp;
    low integer;
    high integer;
    part text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7075663082) THEN
        RETURN;
    END IF;
    IF EXISTS (
        SELECT FROM generate_series(0, 1) ahead WHERE to_regclass(to_char(
            moment AT TIME ZONE 'UTC' + make_interval(months => ahead), '"proxyfleet.usage_hours_"YYYY_MM'
        )) IS NULL
    ) THEN
        PERFORM FROM usage_ledgers l ORDER BY l.node, l.ledger FOR UPDATE;
    END IF;
    begins := usage_hour();
    FOR ahead IN 0..1 LOOP
        first := to_timestamp(begins.month * 3600.0) AT TIME ZONE 'UTC' + make_interval(months => ahead);
        part := to_char(first, '"usage_hours_"YYYY_MM');
        CONTINUE WHEN to_regclass('proxyfleet.' || part) IS NOT NULL;
        low := extract(epoch FROM first) / 3600;
        high := extract(epoch FROM first + interval '1 month') / 3600;
        EXECUTE format('CREATE TABLE proxyfleet.%I (LIKE proxyfleet.usage_hours) WITH (fillfactor = 70)', part);
        EXECUTE format(
            'WITH moved AS (DELETE FROM usage_hours_other WHERE hour >= %s AND hour < %s RETURNING *)'
            ' INSERT INTO %I SELECT * FROM moved', low, high, part);
        EXECUTE format('ALTER TABLE usage_hours ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', part, low, high);
    END LOOP;

    FOR part IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'usage_hours'::regclass AND c.relname < to_char(
            to_timestamp(begins.hour * 3600.0) AT TIME ZONE 'UTC' - interval '400 days', '"usage_hours_"YYYY_MM')
    LOOP
        PERFORM FROM usage_ledgers l ORDER BY l.node, l.ledger FOR UPDATE;
        EXECUTE format('DROP TABLE %I', part);
    END LOOP;
    DELETE FROM usage_hours_other o WHERE o.hour < begins.hour - 9600;
    DELETE FROM usage_days d WHERE d.day < begins.hour / 24 - 400;
    -- Not what a report has locked, which takes its locks in another order.
    WITH gone AS MATERIALIZED (
        SELECT t.account FROM usage_totals t
        WHERE t.slot < extract(epoch FROM moment - interval '400 days') / 10 AND t.total_in + t.total_out = 0 FOR UPDATE SKIP LOCKED
    ) DELETE FROM usage_totals t USING gone g WHERE t.account = g.account;
    WITH gone AS MATERIALIZED (
        SELECT l.account, l.node FROM leases l WHERE l.at < extract(epoch FROM moment - interval '1 day')
        FOR UPDATE SKIP LOCKED
    ) DELETE FROM leases l USING gone g WHERE l.account = g.account AND l.node = g.node;
END $$;
DROP FUNCTION proxyfleet.tend_locked_usage();

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC;
