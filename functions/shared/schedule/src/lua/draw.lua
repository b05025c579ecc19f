-- Says how many recipients of a tenant's parked mail may go now, so that a replay keeps its rate whoever drives it.
--
-- Guarantee: atomic; over any time no more are given than the rate allows and one second's worth, however many drive the replay.
--
-- KEYS[1]  replays  hash  tenant -> "1|<recipients per second>|<how many may go>|<when that was so, ms>"
-- ARGV[1]  tenant
-- ARGV[2]  recipients wanted
-- ARGV[3]  recipients that went beyond those given before; below 0: that didn't go
-- ARGV[4]  rate, recipients per second: from now on; "=<rate>": if none is set; "": nothing is left, the rate is forgotten
--
-- Returns the recipients given.

local floor, min, max = math.floor, math.min, math.max
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local held = redis.call('HGET', KEYS[1], ARGV[1])
local rate, may_go, at = string.match(held or '', '^1|([%d.]+)|(-?[%d.]+)|(%d+)$')
local told = string.match(ARGV[4], '^=(.*)$')
if not rate then
  rate, may_go, at = tonumber(told or ARGV[4]), 1, now
else
  rate, may_go, at = tonumber(told and rate or ARGV[4]), tonumber(may_go), tonumber(at)
end
local passed = min(max(now - at, 0), 60000)
may_go = min(may_go + rate * passed / 1000, max(rate, 1)) - tonumber(ARGV[3])
local given = max(min(floor(may_go), tonumber(ARGV[2])), 0)
redis.call('HSET', KEYS[1], ARGV[1], string.format('1|%.3f|%.3f|%.0f', rate, may_go - given, now))
return given
