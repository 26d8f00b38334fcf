"""The audit trail: who changed what, by which credential, from where, with what before and after.

`trail` is the table and its hash chain, `masking` leaves secrets out of changes, `audit_context` knows whose request is
served. An entry about a change of documents is in its transaction (`api.engine.commit`). Actions that change no
document (a restart, a test, closing connections) have their entry before the response.
"""
