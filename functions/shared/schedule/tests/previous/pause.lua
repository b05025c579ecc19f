-- Lets a tenant send nothing more. Gives back all that it has booked and ends its waiting lines, so that others have its cells
-- and its turns.
--
-- Guarantee: atomic; cells that have begun are left as they are; nothing of other tenants changes; a pause until it is resumed is
-- not replaced by one with an end. Held step by step
-- against `sendslot_domain::schedule::Schedule::pause`.
--
-- KEYS[1]  schedule  hash  as in book.lua
-- KEYS[2]  tenant    hash  as in book.lua; its field "paused" says until when, too, where a booking reads it anyway
-- KEYS[3]  ends      zset  of priority, as in book.lua     KEYS[4]  asked  zset  of priority
-- KEYS[5]  ends      zset  of bulk                         KEYS[6]  asked  zset  of bulk
-- KEYS[7]  paused    hash  tenant -> "1|<until, ms; 0: until resumed>|<since, ms>|<reason>"
-- ARGV[1]  the tenant's name
-- ARGV[2]  for how long, ms; 0: until it is resumed
-- ARGV[3]  reason: a word
--
-- Returns the recipients given back.

local floor, min, max, call = math.floor, math.min, math.max, redis.call
local ALL, BULK, GOING = 17179869184, 131072, 1048576
local LONGEST_STANDSTILL = 5000
local LINE, STATE = '>dddddddddddd', '>ddddddddddddddddddddddddd'

local name, length = ARGV[1], tonumber(ARGV[2])
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local fields = call('HGETALL', KEYS[2])
local till = length > 0 and now + length or 0
if string.find(call('HGET', KEYS[7], name) or '', '^1|0|') then
  till = 0
else
  call('HSET', KEYS[7], name, string.format('1|%.0f|%.0f|%s', till, now, ARGV[3]))
end
call('HSET', KEYS[2], 'paused', string.format('%.0f', till))
local packed = call('HGET', KEYS[1], 'state')
if not packed or #fields == 0 then
  return 0 -- nothing is booked
end
local state = { struct.unpack(STATE, packed) }
local credit, credit_kind, credit_from = state[22], state[23], state[24]
local set_back = now < state[1] - LONGEST_STANDSTILL -- the next booking starts the schedule anew
local now_cell = floor(max(now, state[1]) / 1000)

-- Takes recipients of a lane out of the windows of a key that were to go in a cell. Answers whether it has any.
local function uncount(key, bulk_lane, cell, recipients)
  local found = false
  local windows = call('HMGET', key, 'hour', 'day')
  for w = 1, 2 do
    if windows[w] then
      found = true
      local seconds, size = w == 1 and 61 or 901, #windows[w] / 8
      local format = '>' .. string.rep('d', size)
      local window = { struct.unpack(format, windows[w]) }
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

-- Of a line's numbers, the eleventh says how often the cells had started anew when it last booked.
local of_this_run = {}
for i = 1, #fields, 2 do
  if fields[i] == 'priority' or fields[i] == 'bulk' then
    of_this_run[fields[i]] = struct.unpack('>d', string.sub(fields[i + 1], 81, 88)) == state[18]
  end
end

local given, earliest = 0, math.huge
local gone = {}
for i = 1, #fields, 2 do
  local field, value = fields[i], fields[i + 1]
  local lane, cell = string.match(field, '^(%a+)(%d+)$')
  local bulk_lane = lane == 'bulk' or field == 'bulk'
  if field == 'priority' or field == 'bulk' then
    -- Of the state's numbers, these are the lane's virtual time, weight and next end.
    local at = bulk_lane and 12 or 5
    local queued, _, tag, weight, asked, _, _, since, reached, lowest, run, opened = struct.unpack(LINE, value)
    if weight > 0 then
      local ends, all_asked = bulk_lane and KEYS[5] or KEYS[3], bulk_lane and KEYS[6] or KEYS[4]
      local member = weight .. '|' .. name
      if call('ZREM', ends, member) == 1 then
        call('ZREM', all_asked, member)
        state[at + 1] = state[at + 1] - weight
        state[at + 4] = state[at + 1] > 0 and state[at + 4] - weight * tag or 0 -- the ends of all lines
        state[at + 2] = tonumber(call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2] or math.huge)
      end
    end
    call('HSET', KEYS[2], field, struct.pack(LINE, queued, queued, weight > 0 and 0 or tag, 0, asked, 0, 0, since,
      reached, lowest, run, opened))
  elseif lane == 'priority' or bulk_lane then
    gone[#gone + 1] = field
    cell, value = tonumber(cell), tonumber(value)
    local going = value % GOING
    local booked = (value - going) / GOING
    if cell > now_cell and not set_back and of_this_run[lane] then
      if booked > 0 then
        local held = tonumber(call('HGET', KEYS[1], cell) or 0)
        local rest = held % ALL
        local slots = rest % BULK
        local all, bulk = (held - rest) / ALL, (rest - slots) / BULK
        local own = min(booked, bulk_lane and bulk or all - bulk)
        all = all - own
        if bulk_lane then
          bulk = bulk - own
        end
        call('HSET', KEYS[1], cell, all * ALL + bulk * BULK + min(slots, all))
        given = given + own
        earliest = min(earliest, cell)
      end
      if going > 0 then
        uncount(KEYS[2], bulk_lane, cell, going)
        if uncount(KEYS[1], bulk_lane, cell, going) then
          earliest = min(earliest, now_cell) -- its room may be anybody's, from now on
        end
      end
    end
  end
end
for i = 1, #gone, 2000 do
  call('HDEL', KEYS[2], unpack(gone, i, min(i + 1999, #gone)))
end
-- The fourth and the eleventh are the lanes' frontiers, the 19th and 20th from where they have any room.
for _, at in ipairs({ 4, 11, 19, 20 }) do
  state[at] = min(state[at], earliest)
end
call('HSET', KEYS[1], 'state', struct.pack(STATE, unpack(state, 1, 25)))
return given
