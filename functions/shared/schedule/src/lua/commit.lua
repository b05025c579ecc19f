-- Ends claims: leaves a mark where it is known what became of a message, gives the claim up where it may be tried again, and
-- notes where nobody knows whether the provider accepted it. SES's own event that it has sent a message ends its claim, too.
--
-- Guarantee: atomic. "sent" is left even when the claim is gone or another's, and nothing replaces it. A claim is given up,
-- or noted as uncertain, only by its owner; where it is gone, "uncertain" is noted all the same. What is sent is counted once for its tenant
-- and lane, though its event may have marked it before.
--
-- KEYS[1]       guard                hash    as in claim.lua: what the provider hasn't taken is taken out of what was sent
-- KEYS[2]       uncertain            hash    "<tenant>:<send id>" -> "<since when (ms)>|<lane>": mail of which nobody knows whether it was sent
-- then two for each message:
-- KEYS[2i + 1]  claim of message i   string  as in claim.lua
-- KEYS[2i + 2]  sent:<tenant> of it  hash    "<lane><quarter of an hour>" -> recipients sent to; of the last day
-- ARGV[1]       owner of the claims; "event" for SES's event
-- ARGV[2]       life of a mark, ms: longer than any message lives
-- then three for each message: how it ended, "sent", "rejected", "uncertain" or "free", its recipients, and its lane
--
-- Returns the number of claims that were no longer the owner's.

local floor, call = math.floor, redis.call
local DAY, LIFE = 96, 93600000 -- quarters of an hour; ms: a day and two hours
local time = call('TIME')
local at = time[1] * 1000 + floor(time[2] / 1000)
local now, quarter = string.format('%.0f', at), floor(at / 900000)
local lost, not_taken = 0, 0
local claims, sent = {}, {}
for i = 3, #KEYS, 2 do
  claims[#claims + 1] = KEYS[i]
end
local held = call('MGET', unpack(claims))
for i = 1, #claims do
  local key = claims[i]
  local state, fingerprint, owner
  if held[i] then
    state, fingerprint, owner = string.match(held[i], '^1|(%a+)|%d+|([^|]*)|(.*)$')
  end
  local ours = owner == ARGV[1] and state == 'claimed'
  local how, cost, lane = ARGV[3 * i], tonumber(ARGV[3 * i + 1]), ARGV[3 * i + 2]
  local name = string.match(key, ':claim:(.+)$')
  if not ours then
    lost = lost + 1
  elseif how == 'free' or how == 'rejected' then
    not_taken = not_taken + cost
  end
  if how == 'free' then
    if ours then
      call('DEL', key)
    end
  elseif how == 'sent' or state ~= 'sent' and (ours or not held[i]) then
    call('SET', key, '1|' .. how .. '|' .. now .. '|' .. (fingerprint or '') .. '|' .. ARGV[1], 'PX', ARGV[2])
    if how == 'uncertain' then
      call('HSET', KEYS[2], name, now .. '|' .. lane)
    end
  end
  if how == 'sent' and (state ~= 'sent' or owner == 'event') then
    local of = KEYS[2 * i + 2]
    sent[of] = sent[of] or {}
    sent[of][lane] = (sent[of][lane] or 0) + cost
  end
  if state == 'uncertain' and how ~= 'uncertain' then
    call('HDEL', KEYS[2], name)
  end
end
for key, lanes in pairs(sent) do
  for lane, recipients in pairs(lanes) do
    if call('HINCRBY', key, lane .. quarter, recipients) == recipients then
      -- The quarter is new: what is older than a day is dropped, and all goes with the last.
      local old = {}
      for i = 1, DAY do
        old[i] = lane .. (quarter - DAY - i)
      end
      call('HDEL', key, unpack(old))
      call('PEXPIRE', key, LIFE)
    end
  end
end
if not_taken > 0 then
  call('HINCRBY', KEYS[1], string.format('sent:%.0f', floor(at / 60000)), -not_taken)
end
return lost
