-- Lets a tenant send again. What it is owed is not here: its mail is parked or waits.
--
-- Guarantee: atomic.
--
-- KEYS[1]  paused  hash  as pause.lua writes it
-- ARGV[1]  the tenant's name
--
-- Returns 1 if it was paused, else 0.

return redis.call('HDEL', KEYS[1], ARGV[1])
