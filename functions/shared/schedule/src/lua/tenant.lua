-- Says what the settings of tenants are.
--
-- Guarantee: nothing changes. A Redis that was emptied, or that control has never filled, isn't taken for one with no tenants.
--
-- KEYS[1]  tenants  hash, as in tenants.lua
-- ARGV     tenants
--
-- Returns one each: the settings, or nil where the tenant isn't known.
-- Errors: NOBUDGET when nothing was written.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return redis.error_reply('NOBUDGET the tenants are not set up')
end
return redis.call('HMGET', KEYS[1], unpack(ARGV))
