"""What the cases are built of: the table they ask about, clients, loads, and the things they compare with."""
