"""Environment variables of ours that the command line reads; apart from the settings, whose import takes time."""

ENV_PREFIX = "PROXYFLEET_"
"""How all of them begin."""
OPTION_VARIABLES = {"CONFIG", "NEW_PASSWORD", "URL", "API_KEY", "CA_FILE"}
"""Variables of the prefix that are options of commands and no keys of the configuration."""
