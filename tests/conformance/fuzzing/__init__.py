"""Coverage-guided fuzzing of every protocol: `scripts/fuzz`, and docs/testing.md says how."""
