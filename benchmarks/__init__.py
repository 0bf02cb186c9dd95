"""Measurements: one file in `cases` for each question; `run.py` asks it and writes the answer down."""
