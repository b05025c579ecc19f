-- Says what is known of mails.
--
-- Guarantee: atomic; nothing changes.
--
-- KEYS[2i - 1]  claim of mail i  string  as in claim.lua
-- KEYS[2i]      trace of mail i  string  as in trace.lua
--
-- Returns { now (ms), claim, trace, claim, trace, … }, '' where there is none.

local time, held = redis.call('TIME'), {}
for from = 1, #KEYS, 4000 do
  local part = redis.call('MGET', unpack(KEYS, from, math.min(from + 3999, #KEYS)))
  for i = 1, #part do
    held[from + i] = part[i] or ''
  end
end
held[1] = time[1] * 1000 + math.floor(time[2] / 1000)
return held
