"""The zoo: data with planted shortcuts and data without, by which the audit is developed and judged."""
