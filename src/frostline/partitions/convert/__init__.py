"""Converting a plain table to a partitioned one while it is used."""
