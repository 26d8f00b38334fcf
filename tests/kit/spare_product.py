"""The product of a worker for tests that kill, stop and start it: emptied for each, and started again at need."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.kit.product import Product
from tests.kit.shared_product import configuration
from tests.kit.wait import wait_until

READ_AGAIN = "the configuration was read again"


class SpareProduct(Product):
    """A product of the shared configuration, and a process group of its own.

    `begin` makes it what it was at its first start: without proxies, accounts, keys and so on, with its settings, its
    configuration file and no log. Its audit trail, history and access records go on.
    """

    def __init__(self, test_url: str) -> None:
        self._configured = configuration(test_url)
        super().__init__(config=self._configured, wrapper=["setsid"])
        self._first_port = self.port
        self._empty: dict[str, Any] | None = None

    @property
    def reusable(self) -> bool:
        """Is it where it was, with its keys?"""
        return self.port == self._first_port and (self.data_dir / "keys" / "secrets.key").exists()

    def begin(self) -> None:
        """It runs, and is empty."""
        if self.process is None or self.process.poll() is not None:
            self.configured = self._configured
            self.start()
        self.wait_healthy()
        if self._empty is None:
            self._empty = {
                name: value for name, value in self.data("GET", "/config/export").items() if name != "settings"
            }
        else:
            self._take_away()
        self.forget_log()

    def reload(self) -> None:
        """It has read its configuration file again (SIGHUP)."""
        before = self.log.count(READ_AGAIN)
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self.log.count(READ_AGAIN) > before, READ_AGAIN)

    def _take_away(self) -> None:
        """What the test before has made and set."""
        self.forget_token()
        if self.configured != self._configured:
            self.configure(self._configured)
            self.reload()
        for setting in self.data("GET", "/settings/sources")["settings"]:
            if setting["source"] == "api":
                self.data("DELETE", f"/settings/{setting['key']}")
        response = self.api("POST", "/config/import?prune=true", self._empty)
        assert response.status_code == 200, response.text
        for key in self.data("GET", "/api-keys")["api_keys"]:
            self.data("DELETE", f"/api-keys/{key['id']}")
