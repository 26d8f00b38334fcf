"""Made-up names that the pictures have: of proxies, people, programs and places."""

from __future__ import annotations

HOSTS = {
    "api.shop.example": 30,
    "registry.npm.example": 18,
    "pypi.packages.example": 16,
    "static.cdn.example": 26,
    "search.example.com": 14,
    "git.example.org": 11,
    "images.catalogue.example": 12,
    "telemetry.vendor.example": 8,
    "mirror.debian.example": 7,
    "maps.example.net": 6,
    "prices.market.example": 9,
    "mail.example.com": 5,
    "docs.example.org": 4,
    "tracker.ads.example": 4,
}
"""By how often they are asked for."""
PATHS = (
    "v1/items?page=7",
    "v1/orders",
    "img/4711.webp",
    "assets/app.js",
    "search?q=proxy",
    "feed.xml",
    "simple/requests/",
    "status",
    "v2/manifests/latest",
    "prices.json",
)
AGENTS = ("curl/8.11.0", "python-requests/2.32", "Go-http-client/2.0", "Mozilla/5.0")
ACCOUNTS = (
    "build-linux",
    "build-macos",
    "price-watch",
    "catalogue-sync",
    "alice",
    "bob",
    "carol",
    "nightly-tests",
    "partner-north",
    "partner-south",
    "research",
    "translation",
)
"""Accounts of the fleet."""
PASSWORD = "a long password of a picture"
REFUSED = "tracker.ads.example"
"""A host that an access rule denies."""
