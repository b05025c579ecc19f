-- Has a mail never be sent, or never again if nobody knows whether it was.
--
-- Guarantee: atomic. What a worker is sending, or what has ended, stays as it is. A "sent" that the provider tells of later replaces the mark.
--
-- KEYS[1]  claim      string  as in claim.lua: "cancelled" is left there, for those who claim it
-- KEYS[2]  trace      string  as in trace.lua: likewise, for those who book it
-- KEYS[3]  uncertain  hash    as in commit.lua
-- ARGV[1]  life of the marks, ms: longer than any message lives
-- ARGV[2]  "<tenant>:<send id>"
--
-- Returns { 1 if it is cancelled now, else 0, now (ms), claim and trace as they were, '' where there was none }

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = call('MGET', KEYS[1], KEYS[2])
local claim, trace = held[1] or '', held[2] or ''
local state, at, fingerprint = string.match(claim, '^1|(%a+)|(%d+)|([^|]*)|')
local free = claim == '' or state == 'uncertain' or state == 'claimed' and tonumber(at) <= now
if free then
  local when = string.format('%.0f', now)
  call('SET', KEYS[1], '1|cancelled|' .. when .. '|' .. (fingerprint or '') .. '|', 'PX', ARGV[1])
  local before = trace ~= '' and trace .. ';' or '1|||'
  call('SET', KEYS[2], before .. 'cancelled,' .. when, 'PX', ARGV[1])
  call('HDEL', KEYS[3], ARGV[2])
end
return { free and 1 or 0, now, claim, trace }
