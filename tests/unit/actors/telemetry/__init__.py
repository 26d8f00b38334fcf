"""The push by OTLP."""
