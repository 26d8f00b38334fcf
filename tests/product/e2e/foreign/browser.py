"""How Chromium is started for tests."""

from __future__ import annotations

FLAGS = (
    "--headless",
    "--no-sandbox",  # root has no other way
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--proxy-bypass-list=<-loopback>",  # loopback, too, goes through the proxy
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # socks4 leaves names to the browser
)


NAMES = ["*.com", "*.net", "*.org"]
"""Hosts that Chromium would call of its own accord. They are denied by name, so that they are not even resolved."""
