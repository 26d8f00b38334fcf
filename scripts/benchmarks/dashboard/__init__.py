"""`scripts/bench dashboard`: what the dashboard weighs, how soon and how smoothly it shows, and what its polling costs.

A product with many proxies, accounts and records is looked at with Debian's Chromium over loopback. The proxies are
configured and do not run. Where the processor is said to be slower, Chromium slows the page down itself
(`Emulation.setCPUThrottlingRate`).
"""
