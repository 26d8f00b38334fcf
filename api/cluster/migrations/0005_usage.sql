-- What accounts have used on all nodes, and how much of a quota each node may use beyond what it has reported.
--
-- A node reports the absolute figures of its own ledger, by hour, account and proxy. The greater of old and new stays,
-- and the difference is added to the totals in the same transaction: a report may be repeated, late, or overtaken by a
-- later one. Hours are numbers since 1970, and those of the periods are the first hours of them, by this server's clock.

CREATE TABLE proxyfleet.usage_hours (
    hour integer NOT NULL,
    account text NOT NULL,
    proxy text NOT NULL,
    node text NOT NULL,
    ledger text NOT NULL,
    bytes_in bigint NOT NULL,
    bytes_out bigint NOT NULL,
    requests bigint NOT NULL,
    milliseconds bigint NOT NULL,
    refusals bigint NOT NULL,
    PRIMARY KEY (hour, account, proxy, node, ledger)
) PARTITION BY RANGE (hour);
-- Of clocks that are months wrong; `tend_usage` moves what belongs to a month that it makes.
CREATE TABLE proxyfleet.usage_hours_other PARTITION OF proxyfleet.usage_hours DEFAULT WITH (fillfactor = 70);

-- Of hours that are added up; those of the last days are in `usage_hours` alone.
CREATE TABLE proxyfleet.usage_days (
    day integer NOT NULL,
    account text NOT NULL,
    proxy text NOT NULL,
    node text NOT NULL,
    bytes_in bigint NOT NULL,
    bytes_out bigint NOT NULL,
    requests bigint NOT NULL,
    milliseconds bigint NOT NULL,
    refusals bigint NOT NULL,
    PRIMARY KEY (day, account, proxy, node)
);

-- The last change of a node's ledger that is here; all of its hours before `settled` are, and change no more. Those
-- before `added` are added up.
CREATE TABLE proxyfleet.usage_ledgers (
    node text NOT NULL,
    ledger text NOT NULL,
    number bigint NOT NULL DEFAULT 0,
    settled integer NOT NULL DEFAULT 0,
    added integer NOT NULL DEFAULT 0,
    at double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (node, ledger)
) WITH (fillfactor = 20);

-- The last hour that there was: a clock that is set back by less than a day stays in it.
CREATE TABLE proxyfleet.usage_clock (one boolean PRIMARY KEY DEFAULT true CHECK (one), hour integer NOT NULL);
INSERT INTO proxyfleet.usage_clock (hour) VALUES (0);

-- Of each period its first hour, and bytes in it. A reset is a new generation. `warned` and `reached` are the first
-- hours of the periods in which a node has announced that, and which node. `slot` is when it has changed, in tens of
-- seconds: with the same slot an update stays on its page.
CREATE TABLE proxyfleet.usage_totals (
    account text PRIMARY KEY,
    generation bigint NOT NULL DEFAULT 0,
    day integer NOT NULL DEFAULT 0,
    day_in bigint NOT NULL DEFAULT 0,
    day_out bigint NOT NULL DEFAULT 0,
    week integer NOT NULL DEFAULT 0,
    week_in bigint NOT NULL DEFAULT 0,
    week_out bigint NOT NULL DEFAULT 0,
    month integer NOT NULL DEFAULT 0,
    month_in bigint NOT NULL DEFAULT 0,
    month_out bigint NOT NULL DEFAULT 0,
    total_in bigint NOT NULL DEFAULT 0,
    total_out bigint NOT NULL DEFAULT 0,
    last_seen double precision NOT NULL DEFAULT 0,
    client text NOT NULL DEFAULT '',
    username text NOT NULL DEFAULT '',
    warned integer NOT NULL DEFAULT -1,
    warned_by text NOT NULL DEFAULT '',
    reached integer NOT NULL DEFAULT -1,
    reached_by text NOT NULL DEFAULT '',
    slot bigint NOT NULL
) WITH (fillfactor = 60);
CREATE INDEX usage_totals_by_slot ON proxyfleet.usage_totals (slot, account);

-- Bytes that a node may use beyond what it has reported. `rate` is what it used lately, a minute's use counting less and
-- less; `at` is Unix time, 0 when it was given back.
CREATE TABLE proxyfleet.leases (
    account text NOT NULL,
    node text NOT NULL,
    bytes bigint NOT NULL,
    rate double precision NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (account, node)
) WITH (fillfactor = 60);

-- The present hour, and the first ones of its day, week and month.
CREATE FUNCTION proxyfleet.usage_hour(OUT hour integer, OUT day integer, OUT week integer, OUT month integer)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
DECLARE
    here integer := floor(extract(epoch FROM clock_timestamp()) / 3600);
BEGIN
    SELECT c.hour INTO hour FROM usage_clock c;
    IF here > hour OR here < hour - 24 THEN
        UPDATE usage_clock c SET hour = here WHERE c.hour = usage_hour.hour;
        hour := here;
    END IF;
    day := hour - hour % 24;
    week := day - (day / 24 + 3) % 7 * 24;
    month := extract(epoch FROM date_trunc('month', to_timestamp(hour * 3600.0) AT TIME ZONE 'UTC')) / 3600;
END $$;

-- A row of totals as nodes get it.
CREATE FUNCTION proxyfleet.usage_row(t proxyfleet.usage_totals) RETURNS json
LANGUAGE sql STABLE AS $$
    SELECT json_build_array(
        t.account, t.generation, t.day, t.day_in, t.day_out, t.week, t.week_in, t.week_out, t.month, t.month_in,
        t.month_out, t.total_in, t.total_out, t.warned, t.reached, t.last_seen, t.client, t.username
    )
$$;

-- What a report may say of generations. A later migration has more to say of it.
CREATE FUNCTION proxyfleet.own_report(by_node text, of_account text[], of_generation bigint[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp AS $$
BEGIN
    RETURN of_generation;
END $$;

-- Take what a node's ledger says. `changed_…` are the columns of rows in the order of their numbers, all after
-- `acknowledged` up to `upto`; what it says of hours before `settles` is all here then. `of_…` are columns of the accounts
-- of these rows, and of those that want a lease. The reply's `number` is what is here now: less than `acknowledged` when
-- the database was restored to an earlier time, and then nothing is taken. `rows` has for each account: the row of totals,
-- the lease and all leases in bytes, whether this node announces that the part `warning` of the quota is used, and that
-- all of it is.
CREATE FUNCTION proxyfleet.report_usage(
    by_node text, of_ledger text, acknowledged bigint, upto bigint, settles integer, warning double precision,
    changed_number bigint[], changed_hour integer[], changed_account text[], changed_proxy text[],
    changed_in bigint[], changed_out bigint[], changed_requests bigint[], changed_milliseconds bigint[],
    changed_refusals bigint[],
    of_account text[], of_generation bigint[], of_quota bigint[], of_period text[], of_wants boolean[],
    of_last_seen double precision[], of_client text[], of_username text[]
) RETURNS TABLE (at double precision, number bigint, nodes integer, rows text)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp SET enable_seqscan = off AS $$
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
    INSERT INTO usage_totals (account, slot)
        SELECT a, floor(moment / 10)::bigint FROM unnest(of_account) a
        WHERE NOT EXISTS (SELECT FROM usage_totals t WHERE t.account = a)
        ORDER BY 1 ON CONFLICT DO NOTHING;
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
        FROM asked a LEFT JOIN sums s ON s.account = a.account,
            LATERAL (SELECT * FROM usage_totals t WHERE t.account = a.account LIMIT 1) t,
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
        WHERE t.account = u.account
        RETURNING t.account, usage_row(t) AS row, t.warned = u.since AND t.warned_by = by_node AS warns,
            t.reached = u.since AND t.reached_by = by_node AS reaches
    ), lent AS MATERIALIZED (
        SELECT u.account, u.more, u.wants, greatest(u.quota - u.used, 0) AS is_left, u.quota, o.bytes AS others,
            o.rate AS others_rate, o.nodes, coalesce(l.rate * exp(greatest(least(l.at - moment, 0) / 60, -20)), 0) + u.more AS rate
        FROM used u LEFT JOIN LATERAL (
                SELECT * FROM leases l WHERE l.account = u.account AND l.node = by_node LIMIT 1
            ) l ON true,
            LATERAL (
                SELECT coalesce(sum(e.bytes), 0) AS bytes, count(*) AS nodes,
                    coalesce(sum(e.rate * exp(greatest(least(e.at - moment, 0) / 60, -20))), 0) AS rate
                FROM leases e WHERE e.account = u.account AND e.node <> by_node AND e.at > moment - 60
            ) o
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

-- Totals that have changed since a slot, after the account `after` in it, at most so many: [row of totals, NULL, all
-- leases, false, false], and the slot of each.
CREATE FUNCTION proxyfleet.changed_usage(from_slot bigint, after text, most integer)
RETURNS TABLE (at double precision, slot bigint, account text, "row" text)
LANGUAGE plpgsql STABLE SET search_path = proxyfleet, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT extract(epoch FROM clock_timestamp())::float8, t.slot, t.account,
        json_build_array(usage_row(t), NULL, (
            SELECT coalesce(sum(l.bytes), 0) FROM leases l
            WHERE l.account = t.account AND l.at > extract(epoch FROM clock_timestamp()) - 60
        ), false, false)::text
    FROM usage_totals t WHERE (t.slot, t.account) > (from_slot, after) ORDER BY t.slot, t.account LIMIT most;
END $$;

-- Nothing is used of these accounts from now on, in any period: a new generation of each.
CREATE FUNCTION proxyfleet.reset_usage(accounts text[]) RETURNS TABLE (account text, generation bigint)
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment double precision := extract(epoch FROM clock_timestamp());
BEGIN
    INSERT INTO usage_totals (account, slot) SELECT DISTINCT a, floor(moment / 10)::bigint FROM unnest(accounts) a
        ORDER BY 1 ON CONFLICT DO NOTHING;
    PERFORM FROM usage_totals t WHERE t.account = ANY (accounts) ORDER BY t.account FOR NO KEY UPDATE;
    RETURN QUERY UPDATE usage_totals t SET
        generation = t.generation + 1, slot = floor(moment / 10)::bigint,
        day_in = 0, day_out = 0, week_in = 0, week_out = 0, month_in = 0, month_out = 0, total_in = 0, total_out = 0,
        warned = -1, reached = -1
    WHERE t.account = ANY (accounts) RETURNING t.account, t.generation;
END $$;

-- What one node does for all, each hour or more often: make the partitions of this month and the next, add up hours
-- that are older than a week, and drop what is older than 400 days. Safe when two do it at once.
CREATE FUNCTION proxyfleet.tend_usage() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = proxyfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment double precision := extract(epoch FROM clock_timestamp());
    begins record := usage_hour();
    first timestamp;
    low integer;
    high integer;
    part text;
    each record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7075663082) THEN
        RETURN;
    END IF;
    FOR ahead IN 0..1 LOOP
        first := to_timestamp(begins.month * 3600.0) AT TIME ZONE 'UTC' + make_interval(months => ahead);
        low := extract(epoch FROM first) / 3600;
        high := extract(epoch FROM first + interval '1 month') / 3600;
        part := to_char(first, '"usage_hours_"YYYY_MM');
        IF to_regclass('proxyfleet.' || part) IS NULL THEN
            EXECUTE format('CREATE TABLE proxyfleet.%I (LIKE proxyfleet.usage_hours) WITH (fillfactor = 70)', part);
            EXECUTE format(
                'WITH moved AS (DELETE FROM usage_hours_other WHERE hour >= %s AND hour < %s RETURNING *)'
                ' INSERT INTO %I SELECT * FROM moved', low, high, part);
            EXECUTE format(
                'ALTER TABLE usage_hours ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', part, low, high);
        END IF;
    END LOOP;

    FOR each IN
        SELECT l.node, l.ledger, l.added, least(l.settled, begins.hour - 168) AS until
        FROM usage_ledgers l ORDER BY l.node, l.ledger FOR UPDATE
    LOOP
        CONTINUE WHEN each.until <= each.added;
        WITH gone AS (
            DELETE FROM usage_hours h WHERE h.hour >= each.added AND h.hour < each.until
                AND h.node = each.node AND h.ledger = each.ledger RETURNING h.*
        ), by_hour AS (
            INSERT INTO usage_hours AS h
                SELECT hour, account, proxy, '', '', bytes_in, bytes_out, requests, milliseconds, refusals FROM gone
            ON CONFLICT (hour, account, proxy, node, ledger) DO UPDATE SET
                bytes_in = h.bytes_in + excluded.bytes_in, bytes_out = h.bytes_out + excluded.bytes_out,
                requests = h.requests + excluded.requests, milliseconds = h.milliseconds + excluded.milliseconds,
                refusals = h.refusals + excluded.refusals
        )
        INSERT INTO usage_days AS d
            SELECT hour / 24, account, proxy, each.node, sum(bytes_in), sum(bytes_out), sum(requests),
                sum(milliseconds), sum(refusals)
            FROM gone GROUP BY hour / 24, account, proxy
        ON CONFLICT (day, account, proxy, node) DO UPDATE SET
            bytes_in = d.bytes_in + excluded.bytes_in, bytes_out = d.bytes_out + excluded.bytes_out,
            requests = d.requests + excluded.requests, milliseconds = d.milliseconds + excluded.milliseconds,
            refusals = d.refusals + excluded.refusals;
        UPDATE usage_ledgers l SET added = each.until WHERE l.node = each.node AND l.ledger = each.ledger;
    END LOOP;

    FOR part IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'usage_hours'::regclass AND c.relname < to_char(
            to_timestamp(begins.hour * 3600.0) AT TIME ZONE 'UTC' - interval '400 days', '"usage_hours_"YYYY_MM')
    LOOP
        EXECUTE format('DROP TABLE %I', part);
    END LOOP;
    DELETE FROM usage_hours_other o WHERE o.hour < begins.hour - 9600;
    DELETE FROM usage_days d WHERE d.day < begins.hour / 24 - 400;
    DELETE FROM usage_totals t WHERE t.slot < (moment - 400 * 86400) / 10 AND t.total_in + t.total_out = 0;
    DELETE FROM leases l WHERE l.at < moment - 86400;
END $$;

SELECT proxyfleet.tend_usage();
