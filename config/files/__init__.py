"""Where files lie, and how they are written: paths, keys, secrets at rest, certificates, the data format."""
