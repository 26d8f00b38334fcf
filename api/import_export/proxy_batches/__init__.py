"""Many proxies in one change, all of them or none: created, changed by id or by a filter, deleted; and their tags.

A batch is planned as an import is, and carried out by the same (`api.import_export.imports`).
"""
