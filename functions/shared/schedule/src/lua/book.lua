-- Books a batch of messages into the earliest cells their lane allows, or says how long each waits.
--
-- Guarantee: atomic; no cell is overbooked; a message is booked whole, its slot within the horizon, or not
-- at all, save the first of its lane; the work doesn't grow with the backlog. Held step by step against `sendslot_domain::schedule`,
-- which explains the rules.
--
-- KEYS[1]  budget    hash  the numbers, as written by seed.lua, and "tenant:<name>" for each known tenant
-- KEYS[2]  schedule  hash  cell (s since the epoch) -> recipients booked in it, 2^20 × in all + from bulk; and
--                          "state", packed as big-endian doubles: clock (ms), first and last cell there is,
--                          then for priority and for bulk: frontier (cell), and of its line the recipients ever
--                          queued and served, and until when (ms) it is open
-- ARGV[1]  lane: "priority" or "bulk"
-- then four for each run of alike messages: tenant, recipients of one message, number of messages,
-- standing ("new", "again", or a place in the line; a message with a place comes alone)
--
-- Returns one flat list of integers: now (ms), ⌊L⌋ (recipients/s), cells looked at, then for each run -1,
-- where the tenant is unknown, or: messages booked, number of takes, number of waits, the takes (cell (s),
-- first turn, recipients, capacity of the cell), in order, and the waits (delay (ms), place (0: the message
-- keeps its standing), estimate (ms)) of the messages behind the booked ones.
-- Errors: NOBUDGET when Redis holds no budget.

local floor, min, max, call = math.floor, math.min, math.max, redis.call
local pack_numbers, unpack_numbers = struct.pack, struct.unpack
local PACK = 1048576
local SHORTEST_SLEEP, LONGEST_SLEEP, LONGEST_STANDSTILL = 1000, 900000, 5000

-- Straight-line code on purpose: to make a function costs a call more than most of what is done here.

local lane = ARGV[1]
local bulk_lane = lane == 'bulk'

local budget
if #ARGV == 5 then
  budget = call('HMGET', KEYS[1], 'book', 'tenant:' .. ARGV[2])
else
  local wanted = { 'book' }
  for i = 2, #ARGV, 4 do
    wanted[#wanted + 1] = 'tenant:' .. ARGV[i]
  end
  budget = call('HMGET', KEYS[1], unpack(wanted))
end
if not budget[1] then
  return redis.error_reply('NOBUDGET the budget is not set up')
end
local num, den, share_num, share_den, reserve, largest_shared, horizon = unpack_numbers('>ddddddd', budget[1])
local line_rate = num / den
if bulk_lane then
  line_rate = line_rate - reserve
end

-- The state: this lane's part, and the other's, which stays as it is.
local clock, first_cell, last_cell, frontier, queued, served, line_until = 0, 0, 0, 0, 0, 0, 0
local other_frontier, other_queued, other_served, other_until = 0, 0, 0, 0
local state = call('HGET', KEYS[2], 'state')
if state then
  if bulk_lane then
    clock, first_cell, last_cell, other_frontier, other_queued, other_served, other_until, frontier, queued, served,
      line_until = unpack_numbers('>ddddddddddd', state)
  else
    clock, first_cell, last_cell, frontier, queued, served, line_until, other_frontier, other_queued, other_served,
      other_until = unpack_numbers('>ddddddddddd', state)
  end
end

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
if now < clock - LONGEST_STANDSTILL then
  -- Set back: start anew, both lanes.
  call('DEL', KEYS[2])
  frontier, other_frontier, first_cell, last_cell = 0, 0, 0, 0
else
  now = max(now, clock)
end
local now_cell = floor(now / 1000)
local horizon_cell, farthest_cell = floor((now + horizon) / 1000), floor((now + LONGEST_SLEEP) / 1000)

-- ⌊x·n ÷ d⌋ with no product above 2^53.
local function mul_div(x, n, d)
  local rest = x % d
  return (x - rest) / d * n + floor(rest * n / d)
end

-- The first cell from `cell` on that holds anything for the lane. At two a second and more, all do.
local next_with_capacity
if num < 2 * den then
  next_with_capacity = function(cell)
    local n = mul_div(cell, num, den)
    if bulk_lane and share_num > 0 then
      n = mul_div(n - mul_div(n, share_num, share_den), share_den, share_den - share_num)
    end
    n = n + 1
    local rest = n % num
    local whole = (n - rest) / num * den
    if rest == 0 then
      return whole - 1
    end
    return whole + floor((rest * den - 1) / num)
  end
end

local held = {} -- cells read so far: cell -> recipients booked, packed
local touched = {} -- cells to write back; some may be named twice
local looked = 0

local reply = { now, largest_shared, 0 }
local size = 3
for i = 2, #ARGV, 4 do
  local run = size
  local count, booked = 0, 0
  if budget[(i + 6) / 4] then
    count = tonumber(ARGV[i + 2])
    reply[run + 1], reply[run + 2], reply[run + 3] = 0, 0, 0
    size = run + 3
  else
    size = run + 1
    reply[size] = -1
  end
  local takes = size
  local cost, standing = tonumber(ARGV[i + 1]), ARGV[i + 3]
  local goes_with = min(cost, largest_shared)
  local again, fresh = standing == 'again', standing == 'new'
  local given = not again and not fresh and tonumber(standing)
  local waiting = 0
  -- First, all of the run at once; then, one by one, what didn't fit, and what may reach past the horizon.
  local together = true
  local reach, retried = horizon_cell, false
  local first -- whether nothing of the lane is booked ahead of the message; nil where that isn't known yet
  while booked + waiting < count do
    local open = served < queued and now <= line_until
    if not open then
      served = queued
    end
    local place
    if fresh then
      place = queued + cost
    elseif given then
      place = max(given, served + cost)
    else
      place = served + cost
    end
    local ahead = place - cost - served -- recipients of the line
    local in_turn = again or not open or retried
    if not in_turn then
      together = false
      in_turn = ahead == 0 or max(frontier * 1000, now) - now + floor(ahead * 1000 / line_rate) <= horizon
    end
    if first == nil then
      first = frontier <= now_cell or next_with_capacity and next_with_capacity(now_cell) >= frontier or false
    end
    local messages = together and count or 1
    local got = 0
    if in_turn then
      -- Take from the frontier on.
      local left = cost * messages
      local cell = max(frontier, now_cell)
      while true do
        if next_with_capacity then
          cell = next_with_capacity(cell)
        end
        if cell > reach and (together or cost - left < goes_with) then
          break
        end
        local packed = held[cell]
        if not packed then
          local more = 0
          if num >= den then
            more = min(floor(left * den / num), 255, max(horizon_cell - cell, 0))
          end
          looked = looked + more + 1
          if more == 0 then
            packed = tonumber(call('HGET', KEYS[2], cell) or 0)
          else
            local names = {}
            for k = 0, more do
              names[k + 1] = cell + k
            end
            local values = call('HMGET', KEYS[2], unpack(names))
            for k = 0, more do
              held[cell + k] = held[cell + k] or tonumber(values[k + 1] or 0)
            end
            packed = held[cell]
          end
        end
        local bulk = packed % PACK
        local all = (packed - bulk) / PACK
        local before, after = mul_div(cell, num, den), mul_div(cell + 1, num, den)
        local holds = after - before
        if cell == now_cell then
          -- Turns that are over count as bulk's; the turn under way may still be used.
          local over = floor((now % 1000) * holds / 1000)
          if all < over then
            bulk = bulk + over - all
            all = over
          end
        end
        local room = holds - all
        if bulk_lane then
          local reserved = mul_div(after, share_num, share_den) - mul_div(before, share_num, share_den)
          room = min(room, holds - reserved - bulk)
        end
        local part = max(min(room, left), 0)
        if part > 0 then
          reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = cell, all, part, holds
          size = size + 4
          all = all + part
          if bulk_lane then
            bulk = bulk + part
          end
          left = left - part
        end
        local now_packed = all * PACK + bulk
        held[cell] = now_packed
        if now_packed ~= packed and touched[#touched] ~= cell then
          touched[#touched + 1] = cell
        end
        if room > part then
          break
        end
        cell = cell + 1
        if left == 0 then
          break
        end
      end
      frontier = cell
      got = cost * messages - left

      -- Give back what makes no whole message.
      local over = got % cost
      got = got - over
      while over > 0 do
        local back = reply[size - 3]
        local part = min(over, reply[size - 1])
        held[back] = held[back] - part * PACK - (bulk_lane and part or 0)
        frontier = min(frontier, back)
        over = over - part
        reply[size - 1] = reply[size - 1] - part
        if reply[size - 1] == 0 then
          reply[size - 3], reply[size - 2], reply[size - 1], reply[size] = nil, nil, nil, nil
          size = size - 4
        end
      end
    end
    booked = booked + got / cost
    if got > 0 and given then
      served = min(queued, served + cost)
    end
    if got == 0 and not together and in_turn and first and not retried then
      -- It is tried again, as far ahead as a delay can be.
      reach, retried = farthest_cell, true
    elseif got == 0 and not together then
      -- Wait. The waits come behind the takes: once one message of a run waits, so do those behind it.
      if waiting == 0 then
        reply[run + 1], reply[run + 2] = booked, (size - takes) / 4
      end
      local left = max(frontier * 1000, now) - now + floor(ahead * 1000 / line_rate)
      if fresh then
        queued = place
        line_until = max(line_until, now + left + floor(left / 2) + 2 * horizon)
      end
      local rest = max(left - floor(horizon / 2), 0)
      local hop = min(rest, LONGEST_SLEEP)
      if rest > LONGEST_SLEEP and fresh then
        hop = rest % LONGEST_SLEEP
      end
      reply[size + 1], reply[size + 2], reply[size + 3] = max(hop, SHORTEST_SLEEP), again and 0 or place, left
      size = size + 3
      waiting = waiting + 1
      first, reach, retried = nil, horizon_cell, false
    elseif got > 0 then
      first, reach, retried = nil, horizon_cell, false
    end
    together = false
  end
  if count > 0 then
    if waiting == 0 then
      reply[run + 1], reply[run + 2] = booked, (size - takes) / 4
    end
    reply[run + 3] = waiting
  end
end
reply[3] = looked

-- Drop the past: a second's cell for each second gone by, after a pause at most 2,000 a call.
if first_cell < now_cell then
  local upto = min(now_cell, last_cell + 1, first_cell + 2000)
  if first_cell < upto then
    local past = {}
    for cell = first_cell, upto - 1 do
      past[#past + 1] = cell
    end
    call('HDEL', KEYS[2], unpack(past))
    first_cell = upto
  end
  if first_cell > last_cell then
    first_cell = now_cell
  end
end

-- Write back what changed.
local args = {}
for i = 1, #touched do
  local cell = touched[i]
  last_cell = max(last_cell, cell)
  args[2 * i - 1] = cell
  args[2 * i] = held[cell]
end
if bulk_lane then
  state = pack_numbers('>ddddddddddd', now, first_cell, last_cell, other_frontier, other_queued, other_served,
    other_until, frontier, queued, served, line_until)
else
  state = pack_numbers('>ddddddddddd', now, first_cell, last_cell, frontier, queued, served, line_until,
    other_frontier, other_queued, other_served, other_until)
end
for i = 4001, #args, 4000 do
  call('HSET', KEYS[2], unpack(args, i, min(i + 3999, #args)))
end
call('HSET', KEYS[2], 'state', state, unpack(args, 1, min(4000, #args)))
return reply
