-- The same report of usage, which reads leases and totals of its accounts at once: 1,000 accounts took 70 ms, one by one.
CREATE OR REPLACE FUNCTION proxyfleet.report_usage(
    by_node text, of_ledger text, acknowledged bigint, upto bigint, settles integer, warning double precision,
    changed_number bigint[], changed_hour integer[], changed_account text[], changed_proxy text[],
    changed_in bigint[], changed_out bigint[], changed_requests bigint[], changed_milliseconds bigint[],
    changed_refusals bigint[],
    of_account text[], of_generation bigint[], of_quota bigint[], of_period text[], of_wants boolean[],
    of_last_seen double precision[], of_client text[], of_username text[]
) RETURNS TABLE (at double precision, number bigint, nodes integer, rows text)
LANGUAGE plpgsql VOLATILE
SET search_path = proxyfleet, pg_temp SET enable_seqscan = off SET enable_nestloop = off SET jit = off AS $$
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
        SELECT e.account, e.node = by_node AS own, sum(e.bytes) AS bytes, count(*) AS nodes,
            sum(e.rate * exp(greatest(least(e.at - moment, 0) / 60, -20))) AS rate
        FROM leases e WHERE e.account = ANY (of_account) AND (e.node = by_node OR e.at > moment - 60)
        GROUP BY e.account, e.node = by_node
    ), lent AS MATERIALIZED (
        SELECT u.account, u.more, u.wants, greatest(u.quota - u.used, 0) AS is_left, u.quota,
            coalesce(o.bytes, 0) AS others, coalesce(o.rate, 0) AS others_rate, coalesce(o.nodes, 0) AS nodes,
            coalesce(l.rate, 0) + u.more AS rate
        FROM used u LEFT JOIN leased l ON l.account = u.account AND l.own
            LEFT JOIN leased o ON o.account = u.account AND NOT o.own
        WHERE u.quota > 0
    ), granted AS (
        INSERT INTO leases AS l
            SELECT account, by_node,
                CASE WHEN wants THEN least(
                    greatest(is_left - others, 0),
                    greatest(262144, least(quota / 100, 67108864)),
                    greatest(262144, floor(greatest(is_left - others, 0) * 0.5 * (
                        1.0 / (1 + nodes) + coalesce(rate / nullif(rate + others_rate, 0), 1.0 / (1 + nodes))
                    )))
                )::bigint ELSE 0 END,
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
