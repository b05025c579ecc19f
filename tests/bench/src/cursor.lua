-- The baseline: the simplest script that gives out slots. It keeps a cursor, the next second with room
-- and how many it holds, and moves it on one message at a time. No lanes, costs, horizon or release.
--
-- KEYS[1]  cursor  hash { second, used }
-- ARGV[1]  messages per second
-- Returns the seconds to wait.
local now = tonumber(redis.call('TIME')[1])
local limit = tonumber(ARGV[1])
local second = tonumber(redis.call('HGET', KEYS[1], 'second') or now)
local used = tonumber(redis.call('HGET', KEYS[1], 'used') or 0)
if second < now then
  second, used = now, 0
end
if used >= limit then
  second, used = second + 1, 0
end
redis.call('HSET', KEYS[1], 'second', second, 'used', used + 1)
return second - now
