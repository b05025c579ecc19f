-- Tells that the provider refused recipients as too many a second, and halves the rate.
--
-- Guarantee: atomic; the rate is cut at most once for what was granted within two seconds, never below 8/1024 of the
-- budget's. claim.lua measures once what is accepted after a cut, and lets the rate climb back. Held step by step against
-- `sendslot_domain::adaptive`, which explains the rules.
--
-- KEYS[1]  budget     hash  "factor": 1024ths of the rate that may be used; none: all. "slowed": "<when it was cut, ms>|<when it
--                           last climbed, ms>|<factor before the cut, 0 once it has been measured>|<until when grants may be of another rate, ms>"
-- KEYS[2]  throttled  hash  tenth of a second -> recipients refused in it
-- ARGV[1]  when they were granted (ms), ARGV[2] recipients
--
-- Returns { 1 if the rate was cut else 0, factor }.

local floor, max, call = math.floor, math.max, redis.call
local ONE, LEAST_FACTOR, SETTLED, KEPT = 1024, 8, 2000, 10000

local granted, recipients = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
call('HINCRBY', KEYS[2], floor(granted / 100), recipients)
call('PEXPIRE', KEYS[2], KEPT)

local held = call('HMGET', KEYS[1], 'factor', 'slowed')
local factor = tonumber(held[1] or ONE)
local cut, settled = string.match(held[2] or '', '^(%d+)|%d+|%d+|(%d+)$')
-- What was granted under a rate before this one says nothing about this one.
if cut and now >= tonumber(cut) and granted < tonumber(settled) then
  return { 0, factor }
end
local slower = max(floor(factor / 2), LEAST_FACTOR)
call('HSET', KEYS[1], 'factor', slower, 'slowed', string.format('%.0f|%.0f|%.0f|%.0f', now, now, factor, now + SETTLED))
return { 1, slower }
