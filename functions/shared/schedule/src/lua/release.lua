-- Gives booked recipients back, so that whoever books next can have their cells.
--
-- Guarantee: atomic; never gives back more than the lane has booked in a cell; cells that have begun are
-- left as they are. Held step by step against `sendslot_domain::schedule::Schedule::release`.
--
-- KEYS[1]  schedule  hash  as in book.lua
-- ARGV[1]  lane: "priority" or "bulk"
-- then two for each cell: cell (s since the epoch), recipients
--
-- Returns the recipients given back.

local floor, min, call = math.floor, math.min, redis.call
local PACK, LONGEST_STANDSTILL = 1048576, 5000

local bulk_lane = ARGV[1] == 'bulk'
local state = call('HGET', KEYS[1], 'state')
if not state then
  return 0 -- nothing is booked
end
local clock = struct.unpack('>d', state)
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
if now < clock - LONGEST_STANDSTILL then
  return 0 -- the clock was set back: the next booking starts the schedule anew
end
local now_cell = floor(math.max(now, clock) / 1000)

local given, earliest = 0, nil
for i = 2, #ARGV, 2 do
  local cell = tonumber(ARGV[i])
  local packed = cell > now_cell and tonumber(call('HGET', KEYS[1], ARGV[i]) or 0) or 0
  local bulk = packed % PACK
  local own = bulk_lane and bulk or (packed - bulk) / PACK - bulk
  local count = min(tonumber(ARGV[i + 1]), own)
  if count > 0 then
    call('HSET', KEYS[1], ARGV[i], packed - count * PACK - (bulk_lane and count or 0))
    given = given + count
    earliest = min(earliest or cell, cell)
  end
end
if earliest then
  -- Of the state's eleven numbers, the fourth and the eighth are the lanes' frontiers.
  local function back_to(frontier)
    return struct.pack('>d', min(struct.unpack('>d', frontier), earliest))
  end
  call('HSET', KEYS[1], 'state', string.sub(state, 1, 24) .. back_to(string.sub(state, 25, 32))
    .. string.sub(state, 33, 56) .. back_to(string.sub(state, 57, 64)) .. string.sub(state, 65))
end
return given
