"""The partitions of a heap, with or without a lake: made ahead, retained, converted to."""
