-- Writes which configuration set each tenant's mail goes through.
--
-- Guarantee: atomic; tenants that aren't named are no longer there.
--
-- KEYS[1]  sets  hash  tenant -> configuration set of the provider; empty: none
-- ARGV     tenant, set, …
--
-- Returns nothing of meaning.

redis.call('DEL', KEYS[1])
for i = 1, #ARGV, 2000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 1999, #ARGV)))
end
return 1
