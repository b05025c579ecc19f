-- Notes whom nobody may be sent to, as the provider's own list says.
--
-- Guarantee: atomic.
--
-- KEYS[1]  suppressed  hash, as in feed.lua
-- ARGV     digest of an address, 16 bytes, and "b" (bounced) or "c" (complained), …
--
-- Returns how many are new.

local seconds = redis.call('TIME')[1]
local new = 0
for i = 1, #ARGV, 2 do
  new = new + redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1] .. seconds)
end
return new
