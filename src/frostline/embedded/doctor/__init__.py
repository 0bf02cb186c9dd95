"""`frostline doctor`: looks at the whole set-up, one small check at a time, and changes nothing."""
