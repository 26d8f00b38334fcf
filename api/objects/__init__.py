"""The kinds of objects: one package for each subject, which declares them and has their services and operations.

`kinds` has the table of them. In a package `…_kind` declares (`api.engine`), `…_operations` are handlers, which
alone know the `Call`; all else is put together in `api.container`. A kind imports the engine and what it refers
to.
"""
