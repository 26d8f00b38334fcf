"""Coverage-guided fuzzing of every protocol: `scripts/fuzz`, and docs/dev/testing.md says how."""
