-- Says which configuration sets tenants' mail goes through.
--
-- Guarantee: nothing changes.
--
-- KEYS[1]  sets  hash, as in sets.lua
-- ARGV     tenants
--
-- Returns one each: the set, empty if it has none, or nil where the tenant isn't known.

return redis.call('HMGET', KEYS[1], unpack(ARGV))
