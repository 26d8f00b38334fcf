-- A stolen edge keeps no other node from reporting: it has one report at a time, whatever connections it has, so that
-- those of others that wait for it come before its next one; and who reports ends edges that hold on to theirs.

CREATE TABLE proxyfleet.edge_reports (node text PRIMARY KEY);
