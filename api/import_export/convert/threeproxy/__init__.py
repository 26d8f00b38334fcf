"""3proxy: `3proxy.cfg`, as version 0.9 and 1.0 read it."""
