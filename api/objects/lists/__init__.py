"""Lists of destinations: `kind` declares them, `actions` has what can be done with one."""
