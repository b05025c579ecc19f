-- Lets a tenant send again. What it is owed is not here: its mail is parked or waits. What was counted against it is forgotten, and mail
-- from before isn't counted any more: it is judged by what it sends from now on.
--
-- Guarantee: atomic.
--
-- KEYS[1]  paused  hash  as pause.lua writes it
-- KEYS[2]  counts  hash  of the tenant, as in feed.lua
-- KEYS[3]  tenant  hash  as in book.lua: its field "paused" goes, also where the version before has resumed the tenant and left it
-- ARGV[1]  the tenant's name
--
-- Returns 1 if it was paused, else 0; then nothing changes.

local call = redis.call
if call('HDEL', KEYS[1], ARGV[1]) + call('HDEL', KEYS[3], 'paused') == 0 then
  return 0
end
local time = call('TIME')
call('DEL', KEYS[2])
call('HSET', KEYS[2], 'since', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
call('PEXPIRE', KEYS[2], 93600000) -- as in feed.lua
return 1
