"""The certificate of one `https` proxy while it runs: read when it can be, and checked from time to time.

What is wrong with it is the problem `certificate`: as long as there was no good pair, clients are rejected.
"""

from __future__ import annotations

import math
import ssl

from actors.bus.loop import Loop, Timer
from actors.bus.messages.problems import CERTIFICATE
from actors.net.tls_stream import Certificate
from actors.net.tls_tickets import Tickets
from actors.problems import Problems
from config.files.certificates import CertificateError
from config.files.client_certificates import ClientFiles

RETRY = 1.0
"""Seconds after which a pair that could not be read is tried again for a client."""
PERIOD = 30.0
"""Seconds between two checks while no client causes one."""


class CertificateWatch:
    """`use` names the files, as often as the configuration changes. `tickets` has the keys of session tickets."""

    def __init__(self, loop: Loop, problems: Problems, tickets: Tickets | None = None) -> None:
        self._loop = loop
        self._problems = problems
        self._tickets = tickets
        self._files: tuple[str, str] | None = None
        self._clients: ClientFiles | None = None
        self._certificate: Certificate | None = None
        self._read_at = -math.inf
        self._timer: Timer | None = None

    @property
    def ends(self) -> float:
        """When the certificate that is served ends, in Unix seconds; 0 while there is none."""
        return 0.0 if self._certificate is None else self._certificate.ends

    def use(self, files: tuple[str, str] | None, clients: ClientFiles | None = None) -> None:
        """The pair is in these files, certificate and key; None: there is none. With `clients`, clients are asked for a
        certificate."""
        if (files, clients) != (self._files, self._clients):
            self._files, self._clients, self._certificate = files, clients, None
        self._read_at = -math.inf
        self._check()

    def context(self) -> ssl.SSLContext | None:
        """The context of the pair as it is now; None as long as there is none that can be used."""
        if self._certificate is None:
            self._read()
        return None if self._certificate is None else self._certificate.context(self._loop.now)

    def _check(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(PERIOD, self._check)
        if self._certificate is None:
            self._read()
        else:
            self._certificate.check()

    def _read(self) -> None:
        if self._loop.now - self._read_at < RETRY:
            return
        self._read_at = self._loop.now
        if self._files is None:
            self._report_missing("there is no certificate")
            return
        try:
            self._certificate = Certificate(*self._files, self._on_condition, self._clients, self._tickets)
        except CertificateError as error:
            self._report_missing(f"the certificate can't be used: {error}")
        else:
            self._problems.report_soon()  # it has an end now

    def _report_missing(self, why: str) -> None:
        self._problems.begins(CERTIFICATE, f"clients are rejected: {why}", serves=False)

    def _on_condition(self, problem: str | None) -> None:
        if problem is None:
            self._problems.ends(CERTIFICATE, "the certificate is good")
        else:
            self._problems.begins(CERTIFICATE, problem)
