"""Lists, pools and policies: what proxies, plans and accounts name (`shared_objects`).

Each is declared in a module of its own (`list_kind`, …), `named_kind` has what they share. `object_changes`
refuses a change of one that is in use, and has their views.
"""
