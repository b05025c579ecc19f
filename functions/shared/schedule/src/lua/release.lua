-- Gives booked messages' recipients back, so that whoever books next can have their cells.
--
-- Guarantee: atomic; never gives back more than a tenant has booked in a cell; cells that have begun are
-- left as they are. Held step by step against `sendslot_domain::schedule::Schedule::release`.
--
-- KEYS[1]      schedule  hash  as in book.lua
-- KEYS[1 + i]  tenant of message i  hash  as in book.lua
-- ARGV[1]  lane: "priority" or "bulk"
-- then for each message: the cell in which it was to go (s since the epoch), 1 if only a slot was booked, else 0, number of its
-- cells, and two for each of them: cell, recipients
--
-- Returns the recipients given back.

local floor, min, max, call = math.floor, math.min, math.max, redis.call
local ALL, BULK, GOING = 17179869184, 131072, 1048576
local LONGEST_STANDSTILL = 5000

local lane = ARGV[1]
local bulk_lane = lane == 'bulk'
local state = call('HGET', KEYS[1], 'state')
if not state then
  return 0 -- nothing is booked
end
local clock = struct.unpack('>d', state)
local restarts = struct.unpack('>d', string.sub(state, 137, 144))
local credit, credit_kind, credit_from = struct.unpack('>ddd', string.sub(state, 169, 192))
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
if now < clock - LONGEST_STANDSTILL then
  return 0 -- the clock was set back: the next booking starts the schedule anew
end
local now_cell = floor(max(now, clock) / 1000)

-- Takes recipients out of the windows of a key that were to go in a cell. Answers whether it has any.
local function uncount(key, cell, recipients)
  local found = false
  local packed = call('HMGET', key, 'hour', 'day')
  for w = 1, 2 do
    if packed[w] then
      found = true
      local seconds, size = w == 1 and 61 or 901, #packed[w] / 8
      local format = '>' .. string.rep('d', size)
      local window = { struct.unpack(format, packed[w]) }
      local of_block = 2 + 4 * max(floor(cell / seconds) - window[1], 0)
      if of_block < size then
        -- What is counted for a credit stays: nobody has booked it yet.
        local kept, kept_bulk = 0, 0
        if key == KEYS[1] and floor(credit_kind / 2 ^ w) % 2 == 1 and max(floor(credit_from / seconds), window[1]) == (of_block - 2) / 4 + window[1] then
          kept, kept_bulk = credit, credit_kind % 2 * credit
        end
        local all = min(recipients, max(window[of_block + 2] - kept, 0))
        local bulk = bulk_lane and min(recipients, max(window[of_block + 3] - kept_bulk, 0)) or 0
        window[of_block + 2], window[of_block + 3] = window[of_block + 2] - all, window[of_block + 3] - bulk
        for at = of_block, size, 4 do
          window[at], window[at + 1] = window[at] - all, window[at + 1] - bulk
        end
        call('HSET', key, w == 1 and 'hour' or 'day', struct.pack(format, unpack(window, 1, size)))
      end
    end
  end
  return found
end

local given, earliest = 0, math.huge
local at, message = 2, 0
while at <= #ARGV do
  message = message + 1
  local tenant = KEYS[1 + message]
  local goes, slot_only, cells = tonumber(ARGV[at]), ARGV[at + 1] == '1', tonumber(ARGV[at + 2])
  at = at + 3
  local cost = 0
  -- Of a line's numbers, the eleventh says how often the cells had started anew when it last booked.
  local line = call('HGET', tenant, lane)
  local of_this_run = line and struct.unpack('>d', string.sub(line, 81, 88)) == restarts
  for _ = 1, cells do
    local cell, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    at = at + 2
    cost = cost + count
    if cell > now_cell and of_this_run then
      local held = tonumber(call('HGET', tenant, lane .. cell) or 0)
      count = min(count, floor(held / GOING))
      if count > 0 then
        call('HSET', tenant, lane .. cell, held - count * GOING)
        local packed = tonumber(call('HGET', KEYS[1], cell) or 0)
        local rest = packed % ALL
        local slots = rest % BULK
        local all, bulk = (packed - rest) / ALL, (rest - slots) / BULK
        local own = min(count, bulk_lane and bulk or all - bulk)
        all = all - own
        if bulk_lane then
          bulk = bulk - own
        end
        slots = min(max(slots - (slot_only and own or 0), 0), all)
        call('HSET', KEYS[1], cell, all * ALL + bulk * BULK + slots)
        given = given + own
        earliest = min(earliest, cell)
      end
    end
  end
  if goes > now_cell and of_this_run then
    local held = tonumber(call('HGET', tenant, lane .. goes) or 0)
    local count = min(cost, held % GOING)
    if count > 0 then
      call('HSET', tenant, lane .. goes, held - count)
      uncount(tenant, goes, count)
      if uncount(KEYS[1], goes, count) then
        earliest = min(earliest, now_cell) -- its room may be anybody's, from now on
      end
    end
  end
end
if earliest < math.huge then
  -- Of the state's numbers, the fourth and the eleventh are the lanes' frontiers, the 19th and 20th from where they have any room.
  local numbers = { struct.unpack('>ddddddddddddddddddddddddd', state) }
  for _, at in ipairs({ 4, 11, 19, 20 }) do
    numbers[at] = min(numbers[at], earliest)
  end
  call('HSET', KEYS[1], 'state', struct.pack('>ddddddddddddddddddddddddd', unpack(numbers, 1, 25)))
end
return given
