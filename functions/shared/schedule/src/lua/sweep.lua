-- Forgets those whom the provider's own list doesn't hold any more: nothing was heard of them for three days. So do those of whom was heard
-- in a time further ahead than that: the clock was set back since.
--
-- Guarantee: atomic; a call looks at about a thousand.
--
-- KEYS[1]  suppressed  hash, as in feed.lua
-- ARGV[1]  where the call before ended; 0 at first
--
-- Returns { where to go on, 0 at the end, how many were forgotten }.

local OLDEST = 259200 -- s, as in book.lua
local now = redis.call('TIME')[1] + 0
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 1000)
local old = {}
for i = 1, #page[2], 2 do
  local heard = tonumber(string.sub(page[2][i + 1], 2)) or 0
  if heard < now - OLDEST or heard > now + OLDEST then
    old[#old + 1] = page[2][i]
  end
end
local forgotten = 0
for i = 1, #old, 4000 do
  forgotten = forgotten + redis.call('HDEL', KEYS[1], unpack(old, i, math.min(i + 3999, #old)))
end
return { page[1], forgotten }
