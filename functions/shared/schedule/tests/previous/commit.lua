-- Ends claims: leaves a mark where the provider accepted the message, gives the claim up where it may be
-- tried again.
--
-- Guarantee: atomic. A mark is left even when the claim is gone or another's: the message was sent. A claim
-- is given up only by its owner.
--
-- KEYS[i]      claim of message i   string, as in claim.lua
-- ARGV[1]      owner of the claims
-- ARGV[2]      life of a mark, ms: longer than any message lives
-- ARGV[2 + i]  how message i ended: "sent" or "free"
--
-- Returns the number of claims that were no longer the owner's.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lost = 0
local held = call('MGET', unpack(KEYS))
for i = 1, #KEYS do
  local fingerprint, owner = '', nil
  if held[i] then
    fingerprint, owner = string.match(held[i], '^1|%a+|%d+|([^|]*)|(.*)$')
  end
  local ours = owner == ARGV[1]
  if not ours then
    lost = lost + 1
  end
  if ARGV[2 + i] == 'sent' then
    call('SET', KEYS[i], '1|sent|' .. now .. '|' .. (fingerprint or '') .. '|' .. ARGV[1], 'PX', ARGV[2])
  elseif ours then
    call('DEL', KEYS[i])
  end
end
return lost
