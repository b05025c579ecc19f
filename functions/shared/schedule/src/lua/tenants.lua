-- Writes the settings of every tenant.
--
-- Guarantee: atomic; tenants that aren't named are no longer there.
--
-- KEYS[1]  tenants  hash  tenant -> its settings, as JSON (`sendslot_runtime::tenant`). The field with no name holds a digest of
--                         all, and is there without tenants, too
-- ARGV     tenant, settings, …
--
-- Returns 1 if anything was written, else 0: it was the same.

local digest = redis.sha1hex(table.concat(ARGV, '|'))
if redis.call('HGET', KEYS[1], '') == digest then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], '', digest)
for i = 1, #ARGV, 2000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 1999, #ARGV)))
end
return 1
