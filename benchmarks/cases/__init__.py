"""One module for each question. Its docstring is the question; its function `measure` yields samples."""
