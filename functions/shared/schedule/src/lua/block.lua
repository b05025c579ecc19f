-- Lets nobody send or book for a while: the account can't send.
--
-- Guarantee: atomic; a block is never made shorter. One that follows within a minute of the end of the last for the same
-- reason lasts twice as long as that, up to the longest: an account that is paused for days is asked every 15 minutes. One of the
-- longest lasts that long from now on: whoever asks so says it again and again.
--
-- KEYS[1]  budget  hash  "blocked": "<until, ms>|<how long, ms>|<reason>"
-- ARGV[1]  how long at least, ms; ARGV[2] the longest, ms, at most 900000; ARGV[3] reason: a word
--
-- Returns how long it is until then, ms.

local floor, max, min, call = math.floor, math.max, math.min, redis.call
local SOON, LONGEST_BLOCK = 60000, 960000

local length, longest, reason = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local till, lasted, why = string.match(call('HGET', KEYS[1], 'blocked') or '', '^(%d+)|(%d+)|(.*)$')
till, lasted = tonumber(till or 0), tonumber(lasted or 0)
if till > now + LONGEST_BLOCK then
  till, why = 0, nil -- the clock was set back
end
if till > now and till >= now + length then
  return till - now
end
if why == reason then
  if till > now and length < longest then
    return till - now -- others found out at the same time
  elseif now <= till + SOON then
    length = max(length, min(2 * lasted, longest))
  end
end
length = min(length, longest)
call('HSET', KEYS[1], 'blocked', string.format('%.0f|%.0f|%s', now + length, length, reason))
return length
