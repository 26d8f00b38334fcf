-- Large commits come as rows, by COPY: 100,000 accounts as JSON took 60 s and more, under the lock of the fleet. They are in
-- these tables within the transaction that brings them, which moves them on: so each sees its own alone, and after it
-- there are none. What a crash leaves is nothing (UNLOGGED). No temporary ones: not each role may make some.
CREATE UNLOGGED TABLE proxyfleet.staged_documents (
    collection text NOT NULL,
    id text NOT NULL,
    place integer NOT NULL,
    level integer NOT NULL,
    body json
);
-- `number` is NULL in the one revision of a commit, while it has no number yet.
CREATE UNLOGGED TABLE proxyfleet.staged_changes (
    number bigint,
    place integer NOT NULL,
    collection text NOT NULL,
    id text NOT NULL,
    name text,
    fields text NOT NULL,
    before bytea,
    after bytea
);
CREATE UNLOGGED TABLE proxyfleet.staged_audit (
    seq bigint NOT NULL,
    content text NOT NULL,
    hash text NOT NULL
);
