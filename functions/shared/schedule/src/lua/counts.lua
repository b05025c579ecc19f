-- Says what the provider told of tenants' mail.
--
-- Guarantee: nothing changes.
--
-- KEYS  counts of each tenant  hash, as in feed.lua
--
-- Returns for each { sent, bounced and complained of the last hour, and of the last 24 }, recipients.

local floor, call = math.floor, redis.call
local HOUR, DAY = 60, 96 -- as in feed.lua

local time = call('TIME')
local minute, quarter = floor(time[1] / 60), floor(time[1] / 900)
local answer = {}
for i = 1, #KEYS do
  local sum = { s = 0, b = 0, c = 0, S = 0, B = 0, C = 0 }
  local fields = call('HGETALL', KEYS[i])
  for j = 1, #fields, 2 do
    local what, at = string.match(fields[j], '^(%a)(%d+)$')
    at = tonumber(at)
    if what and (what == string.lower(what) and at > minute - HOUR or what == string.upper(what) and at > quarter - DAY) then
      sum[what] = sum[what] + tonumber(fields[j + 1])
    end
  end
  answer[i] = { sum.s, sum.b, sum.c, sum.S, sum.B, sum.C }
end
return answer
