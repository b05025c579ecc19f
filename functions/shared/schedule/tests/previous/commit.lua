-- Ends claims: leaves a mark where it is known what became of a message, gives the claim up where it may be tried again, and
-- notes where nobody knows whether the provider accepted it. SES's own event that it has sent a message ends its claim, too.
--
-- Guarantee: atomic. "sent" is left even when the claim is gone or another's, and nothing replaces it. A claim is given up,
-- or noted as uncertain, only by its owner; where it is gone, "uncertain" is noted all the same.
--
-- KEYS[1]      guard                hash, as in claim.lua: what the provider hasn't taken is taken out of what was sent
-- KEYS[1 + i]  claim of message i   string, as in claim.lua
-- ARGV[1]      owner of the claims; "event" for SES's event
-- ARGV[2]      life of a mark, ms: longer than any message lives
-- then two for each message: how it ended, "sent", "rejected", "uncertain" or "free", and its recipients
--
-- Returns the number of claims that were no longer the owner's.

local call = redis.call
local time = call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local lost, not_taken = 0, 0
local held = call('MGET', unpack(KEYS, 2))
for i = 1, #KEYS - 1 do
  local key = KEYS[1 + i]
  local state, fingerprint, owner
  if held[i] then
    state, fingerprint, owner = string.match(held[i], '^1|(%a+)|%d+|([^|]*)|(.*)$')
  end
  local ours = owner == ARGV[1] and state == 'claimed'
  local how = ARGV[1 + 2 * i]
  if not ours then
    lost = lost + 1
  elseif how == 'free' or how == 'rejected' then
    not_taken = not_taken + ARGV[2 + 2 * i]
  end
  if how == 'free' then
    if ours then
      call('DEL', key)
    end
  elseif how == 'sent' or state ~= 'sent' and (ours or not held[i]) then
    call('SET', key, '1|' .. how .. '|' .. now .. '|' .. (fingerprint or '') .. '|' .. ARGV[1], 'PX', ARGV[2])
  end
end
if not_taken > 0 then
  call('HINCRBY', KEYS[1], string.format('sent:%.0f', math.floor(now / 60000)), -not_taken)
end
return lost
