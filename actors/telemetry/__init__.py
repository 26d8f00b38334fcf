"""Push of metrics and access records to an OpenTelemetry collector, when one is configured."""
