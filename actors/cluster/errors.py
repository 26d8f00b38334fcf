"""What can go wrong with the database. Errors of psycopg are translated here, at the border, and none has a password.

======================  ============================================================================================
`DatabaseUnavailable`   it can't be reached, doesn't respond in time, or can't do it now; a later try may succeed.
                        What was asked for may have been done, if that was the end of a transaction
`DatabaseBusy`          another node has the lock for too long; nothing was done
`DatabaseUnusable`      the DSN, the role, the version or the rights are not what is needed: someone has to change it
`StatementRefused`      the database has refused a statement; `code` is its SQLSTATE, nothing was done
======================  ============================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as sql

from config import OperatorError


class DatabaseError(OperatorError):
    """The fleet's database can't be used for this."""


class DatabaseUnavailable(DatabaseError):
    """The database doesn't respond, or can't do it now."""


class DatabaseBusy(DatabaseUnavailable):
    """A lock was not free in time."""


class DatabaseDeadlock(DatabaseBusy):
    """This and another transaction waited for each other, and this one was given up."""


class DatabaseUnusable(DatabaseError):
    """The database is there, and can't be used as it is."""


class StatementRefused(DatabaseError):
    """The database has refused a statement, by `code`."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


def level_of(error: Exception | None) -> int:
    """The level of a log line about what this has stopped: in an outage it is no fault of its own."""
    return logging.WARNING if isinstance(error, DatabaseUnavailable) else logging.ERROR


_BUSY = (sql.LockNotAvailable, sql.QueryCanceled)
_FOR_NOW = (
    psycopg.OperationalError,
    sql.ReadOnlySqlTransaction,  # it was failed over, and the address still leads to what is a standby now
    sql.InFailedSqlTransaction,
    sql.IdleInTransactionSessionTimeout,
)
_UNUSABLE = (
    sql.InvalidAuthorizationSpecification,
    sql.InsufficientPrivilege,
    sql.InvalidCatalogName,
    sql.InvalidSchemaName,
    sql.UndefinedTable,
    sql.UndefinedFunction,
)
_REMOVED = "is not permitted to log in"
_UNUSABLE_TEXTS = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    _REMOVED,
    "permission denied for database",
    "certificate",
    "server does not support SSL",
    "not allowed in statement pooling mode",
)
"""Of a connection that can't be made there is no code, only the server's text, and a pooler has one code for all."""
_OF_POOLERS = "08P01"


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Errors of psycopg as those of this module. `place` is the database as people know it."""
    try:
        yield
    except psycopg.Error as error:
        raise _translation(place, error) from error


def _translation(place: str, error: psycopg.Error) -> DatabaseError:
    text = f"{place}: {_line_of(error)}"
    if _REMOVED in text:
        text += "; if this node was removed, `proxyfleet cluster leave --force` goes on alone"
    if isinstance(error, sql.DeadlockDetected):
        return DatabaseDeadlock(text)
    if isinstance(error, _BUSY):
        return DatabaseBusy(text)
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return DatabaseUnusable(text)  # the DSN itself
    by_text = error.sqlstate in (None, _OF_POOLERS) and any(each in str(error) for each in _UNUSABLE_TEXTS)
    if by_text or isinstance(error, _UNUSABLE):
        return DatabaseUnusable(text)
    if isinstance(error, _FOR_NOW) or error.sqlstate is None:
        return DatabaseUnavailable(text)
    return StatementRefused(text, error.sqlstate)


def _line_of(error: psycopg.Error) -> str:
    """One line, as the server says it: values that a statement had are in the lines behind it."""
    if error.diag.message_primary:
        return error.diag.message_primary
    return str(error).strip().partition("\n")[0] or type(error).__name__
