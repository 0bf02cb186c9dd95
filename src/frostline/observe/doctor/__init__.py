"""The doctor: checks of the machine, the database, the lake server and the lake."""
