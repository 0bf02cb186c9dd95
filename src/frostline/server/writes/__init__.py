"""Lake tables at the lake server: transactions that read one cut, see their own changes, and commit all at once."""
