-- Says which configuration sets tenants' mail goes through.
--
-- Guarantee: nothing changes. A Redis that was emptied, or that control has never filled, isn't taken for one with no tenants.
--
-- KEYS[1]  sets  hash, as in sets.lua
-- ARGV     tenants
--
-- Returns one each: the set, empty if it has none, or nil where the tenant isn't known.
-- Errors: NOBUDGET when nothing was written.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return redis.error_reply('NOBUDGET the configuration sets are not set up')
end
return redis.call('HMGET', KEYS[1], unpack(ARGV))
