-- Says how many recipients of a tenant's parked mail may go now, so that a replay keeps its rate whoever drives it.
--
-- Guarantee: atomic; over any time no more are given than the rate allows and one second's worth, one at least, however many drive the
-- replay. Of those given that didn't go, no more than that can go later at once.
--
-- KEYS[1]  replays  hash  tenant, or "!" and a lane for its dead letters -> "1|<recipients per second, behind "=" where none is set>|<how many may go>|<when that was so, ms>";
--                         the first two as exact as they are: callers may come so often that each adds next to nothing
-- ARGV[1]  tenant, or "!" and a lane
-- ARGV[2]  recipients wanted
-- ARGV[3]  recipients that went beyond those given before; below 0: that didn't go
-- ARGV[4]  rate, recipients per second: from now on; "=<rate>": as long as none is set; "": nothing is left, the rate is forgotten
--
-- Returns the recipients given.

local floor, min, max, call = math.floor, math.min, math.max, redis.call
if ARGV[4] == '' then
  call('HDEL', KEYS[1], ARGV[1])
  return 0
end
local wanted, beyond = tonumber(ARGV[2]), tonumber(ARGV[3])
local told, is_usual = string.gsub(ARGV[4], '^=', '')
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local held = call('HGET', KEYS[1], ARGV[1])
local mark, rate, may_go, at = string.match(held or '', '^1|(=?)([^|]+)|([^|]+)|(%d+)$')
if rate then
  may_go = may_go + rate * max(now - at, 0) / 1000
else
  mark, may_go = '=', 1
end
if is_usual == 0 then
  mark = ''
end
if is_usual == 0 or mark == '=' then
  rate = told
end
rate = tonumber(rate)
may_go = min(may_go + max(-beyond, 0), max(rate, 1)) - max(beyond, 0)
local given = max(min(floor(may_go), wanted), 0)
call('HSET', KEYS[1], ARGV[1], string.format('1|%s%.17g|%.17g|%.0f', mark, rate, may_go - given, now))
return given
