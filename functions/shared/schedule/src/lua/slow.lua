-- Tells that the provider refused recipients as too many a second.
--
-- Guarantee: atomic; what was granted before the last cut, or within two seconds of it, is counted and changes nothing.
-- claim.lua cuts the rate by what it finds here, before it grants anything more, and lets it climb back. Held step by step
-- against `sendslot_domain::adaptive`, which explains the rules.
--
-- KEYS[1]  budget     hash  "factor": 1024ths of the rate that may be used; none: all. "slowed": "<when it was cut, ms>|<when it
--                           last climbed, ms>|<factor before the cut, 0 once it has been measured>|<until when grants may be of another rate, ms>".
--                           "refused": "<when the first was granted that was refused since, ms>|<when that was told, ms>"
-- KEYS[2]  throttled  hash  tenth of a second -> recipients refused in it
-- ARGV[1]  when they were granted (ms), ARGV[2] recipients
--
-- Returns the factor.

local floor, call = math.floor, redis.call
local ONE, KEPT = 1024, 10000

local granted, recipients = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
call('HINCRBY', KEYS[2], floor(granted / 100), recipients)
call('PEXPIRE', KEYS[2], KEPT)

local held = call('HMGET', KEYS[1], 'factor', 'slowed', 'refused')
local factor = tonumber(held[1] or ONE)
local cut, settled = string.match(held[2] or '', '^(%d+)|%d+|%d+|(%d+)$')
-- What was granted under a rate before this one says nothing about this one.
if cut and now >= tonumber(cut) and granted < tonumber(settled) then
  return factor
end
local first, told = string.match(held[3] or '', '^(%d+)|(%d+)$')
if not first or granted < tonumber(first) then
  call('HSET', KEYS[1], 'refused', string.format('%.0f|%.0f', granted, tonumber(told or now)))
end
return factor
