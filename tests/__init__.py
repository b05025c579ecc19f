"""Everything that checks Sendslot from outside: see the folder of each kind of test."""
