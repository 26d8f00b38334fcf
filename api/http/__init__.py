"""HTTP as this API speaks it: envelopes, the error table, strict bodies and queries, whose request it is."""
