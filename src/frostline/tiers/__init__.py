"""Both tiers of a table at one point in time: the moment, what a table is at it, its rows, and the proof of them."""
