"""Observing: status, survey, metrics and the doctor. Reads, and changes nothing."""
