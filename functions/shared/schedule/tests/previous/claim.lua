-- Claims a batch of messages for one worker and draws from the guard when each may go.
--
-- Guarantee: atomic. A message that was sent, or that another worker holds, is never claimed. In no
-- second are more than ⌈L⌉ recipients granted, save a single message that costs more alone. What isn't
-- granted isn't claimed either. Held step by step against `sendslot_domain::guard`, which explains the rules.
--
-- KEYS[1]      budget               hash     the numbers, as written by seed.lua
-- KEYS[2]      guard                hash     head (last tick the strip covers), clock, closed_until, and
--                                            strip: 512 ticks of 10 ms in a ring, tick t at t mod 512, six
--                                            bytes each: units taken, of these by bulk, recipients going, each
--                                            of two bytes, big-endian
--                                            "slots_until" (ms), until when slots only are booked, as book.lua notes
-- KEYS[3]      schedule             hash     as in book.lua: the cells say how many recipients others send in a second
-- KEYS[3 + i]  claim of message i   string   "1|claimed|<lease's end, ms>|<fingerprint>|<owner>" or
--                                            "1|sent|<when, ms>|<fingerprint>|<owner>"
-- ARGV[1]      owner: who claims
-- ARGV[2]      lane: "priority" or "bulk"
-- ARGV[3]      lease, ms: how long the claim is alive
-- ARGV[4]      longest wait for a grant, ms, at most 3000
-- ARGV[5]      life of a claim whose end was never told, ms: longer than any message lives
-- then three for each message: slot (ms), recipients, fingerprint of its content
--
-- Returns { now (ms), answer, … }, each answer one of
--   { "go", grant (ms) }          claimed: send it then
--   { "later", ahead (ms) }       not claimed: the slot is still that far ahead, or, at 0, the guard has no grant in time
--   { "held", left (ms) }         another claim is alive that long
--   { "unknown" }                 a claim ended without telling how: it may have been sent
--   { "sent" }                    it was sent
--   { "conflict" }                the send id was used for other content
-- Errors: NOBUDGET when Redis holds no budget.

local floor, min, max, call = math.floor, math.min, math.max, redis.call
local TICK, TICKS, RING, MEMORY = 10, 100, 512, 200
local LONGEST_WAIT, SLOTS = 3000, 131072 -- the last is 2^17, as in book.lua

local numbers = call('HGET', KEYS[1], 'claim')
if not numbers then
  return redis.error_reply('NOBUDGET the budget is not set up')
end
local num, den, share_num, share_den, burst, largest, most = struct.unpack('>ddddddd', numbers)
local bulk_lane = ARGV[2] == 'bulk'

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)

local function mul_div(x, n, d)
  local rest = x % d
  return (x - rest) / d * n + floor(rest * n / d)
end

local function ticks_for(recipients)
  return mul_div(recipients, den, num)
end

-- The strip, read when the first message needs a grant.
local clock, closed_until, head
-- By tick; fullest[t] is the recipients going in the second that starts at t.
local units, bulk_units, going, fullest = {}, {}, {}, {}
local low, high, changed
local away = {} -- by tick: units of it that others have, who send by themselves

-- What others send in a second takes its part of the units of that second, spread evenly over them.
local function see_others()
  local seconds = {}
  for second = floor(low / TICKS), floor(high / TICKS) + 1 do
    seconds[#seconds + 1] = second
  end
  local cells = call('HMGET', KEYS[3], unpack(seconds))
  for k = 1, #seconds do
    local recipients = tonumber(cells[k] or 0) % SLOTS
    local first = mul_div(seconds[k] * TICKS, num, den)
    local all = mul_div((seconds[k] + 1) * TICKS, num, den) - first
    if recipients > 0 and all > 0 then
      recipients = min(recipients, all)
      local before = 0
      for t = seconds[k] * TICKS, (seconds[k] + 1) * TICKS - 1 do
        local after = floor((mul_div(t + 1, num, den) - first) * recipients / all)
        if t <= high + TICKS then
          away[t] = after - before
        end
        before = after
      end
    end
  end
end

local function read_strip()
  local guard = call('HMGET', KEYS[2], 'clock', 'closed_until', 'head', 'strip', 'slots_until')
  clock, closed_until, head = tonumber(guard[1] or 0), tonumber(guard[2] or 0), tonumber(guard[3] or -1)
  local strip = guard[4]
  if now < clock then
    strip, changed = nil, true
    closed_until = floor((now + LONGEST_WAIT) / TICK) + TICKS
  end
  clock = now
  low = floor(now / TICK) - MEMORY
  high = low + RING - 1
  if not strip or head < low then
    strip = nil
  end
  for t = low, high do
    units[t], bulk_units[t], going[t] = 0, 0, 0
  end
  if strip then
    local function read(from, to)
      for t = from, to, RING / 2 do
        local upto = min(t + RING / 2 - 1, to)
        local bytes = { string.byte(strip, (t % RING) * 6 + 1, (t % RING + upto - t) * 6 + 6) }
        for i = 0, upto - t do
          units[t + i] = bytes[6 * i + 1] * 256 + bytes[6 * i + 2]
          bulk_units[t + i] = bytes[6 * i + 3] * 256 + bytes[6 * i + 4]
          going[t + i] = bytes[6 * i + 5] * 256 + bytes[6 * i + 6]
        end
      end
    end
    -- The ring's end may lie between.
    local turn = low - low % RING + RING
    read(low, min(head, turn - 1))
    read(turn, head)
  end
  if tonumber(guard[5] or 0) + MEMORY * TICK > now then
    see_others()
  end
  local sum = 0
  for t = high + TICKS, low, -1 do
    sum = sum + (going[t] or 0) + (away[t] or 0) - (going[t + TICKS] or 0) - (away[t + TICKS] or 0)
    fullest[t] = sum
  end
end

local function write_strip()
  local parts = {}
  for t = low, high do
    local u, b, w = units[t], bulk_units[t], going[t]
    parts[t % RING + 1] = string.char(floor(u / 256), u % 256, floor(b / 256), b % 256, floor(w / 256), w % 256)
  end
  call('HSET', KEYS[2], 'clock', clock, 'closed_until', closed_until, 'head', high, 'strip', table.concat(parts))
end

-- Recipients going in the fullest second that holds this tick.
local function fullest_with(tick)
  local most_going = 0
  for t = max(tick - TICKS + 1, low), tick do
    if fullest[t] > most_going then
      most_going = fullest[t]
    end
  end
  return most_going
end

-- Whether nobody goes from `from` to `to`, and nobody else's in the second before and after `goes`.
local function quiet(goes, from, to)
  for t = max(from, low), min(to, high) do
    if going[t] > 0 then
      return false
    end
  end
  for t = goes - TICKS + 1, goes + TICKS - 1 do
    if (away[t] or 0) > 0 then
      return false
    end
  end
  return true
end

-- The moment (ms) at which the message may go, or nil if that is after the longest wait.
local function grant(slot, cost, longest)
  if not clock then
    read_strip()
  end
  local last = floor((now + longest) / TICK)
  local present = math.ceil(now / TICK)
  local slot_tick = math.ceil(slot / TICK)
  local earliest = max(present, slot_tick, closed_until)
  if earliest > last then
    return nil
  end
  local alone = cost > largest
  local shared = min(cost, largest)
  local takes = {}
  local goes = earliest

  -- Below two a second grants are spaced by themselves, else by units.
  local slow = num * TICKS < 2 * den
  if not slow then
    local from = max(slot_tick, present - min(ticks_for(burst - 1), TICKS)) - min(ticks_for(shared - 1), TICKS)
    local left, tick = shared, from
    local before = mul_div(tick, num, den)
    while left > 0 do
      if tick > last then
        return nil
      end
      local after = mul_div(tick + 1, num, den)
      local others = away[tick] or 0
      local count = after - before - units[tick] - others
      if bulk_lane then
        local reserved = mul_div(after, share_num, share_den) - mul_div(before, share_num, share_den)
        count = min(count, after - before - reserved - bulk_units[tick] - others)
      end
      count = min(count, left)
      if count > 0 then
        takes[#takes + 1] = tick
        takes[#takes + 1] = count
        left = left - count
      end
      before = after
      tick = tick + 1
    end
    goes = max(earliest, tick - 1)
  end

  local silence = alone and max(TICKS, ticks_for(cost - largest) + 1) or TICKS
  while true do
    if goes > last then
      return nil
    end
    local fits
    if alone then
      fits = quiet(goes, goes - TICKS + 1, goes + silence - 1)
    else
      fits = fullest_with(goes) + cost <= most
    end
    if fits then
      break
    end
    goes = goes + 1
  end

  for i = 1, #takes, 2 do
    units[takes[i]] = units[takes[i]] + takes[i + 1]
    if bulk_lane then
      bulk_units[takes[i]] = bulk_units[takes[i]] + takes[i + 1]
    end
  end
  going[goes] = going[goes] + cost
  for t = max(goes - TICKS + 1, low), goes do
    fullest[t] = fullest[t] + cost
  end
  if alone then
    closed_until = goes + silence
  end
  if slow then
    closed_until = max(closed_until, goes + ticks_for(cost) + 1)
  end
  changed = true
  return goes * TICK
end

local owner, lease, life = ARGV[1], tonumber(ARGV[3]), ARGV[5]
local longest = min(tonumber(ARGV[4]), LONGEST_WAIT)
local reply = { now }
local held = #KEYS > 3 and call('MGET', unpack(KEYS, 4)) or {}
local claimed = {}
for i = 1, #KEYS - 3 do
  local key = KEYS[3 + i]
  local slot, cost, fingerprint = tonumber(ARGV[3 + 3 * i]), tonumber(ARGV[4 + 3 * i]), ARGV[5 + 3 * i]
  local state, at, print
  local value = claimed[key] or held[i]
  if value then
    state, at, print = string.match(value, '^1|(%a+)|(%d+)|([^|]*)|')
  end
  if value and not state then
    reply[i + 1] = { 'unknown' } -- written by a version we can't read
  elseif state and print ~= '' and print ~= fingerprint then
    reply[i + 1] = { 'conflict' }
  elseif state == 'sent' then
    reply[i + 1] = { 'sent' }
  elseif state and tonumber(at) > now then
    reply[i + 1] = { 'held', tonumber(at) - now }
  elseif state then
    reply[i + 1] = { 'unknown' }
  elseif slot > now + longest then
    reply[i + 1] = { 'later', slot - now }
  else
    local goes = grant(slot, cost, longest)
    if goes then
      local mine = '1|claimed|' .. (now + lease) .. '|' .. fingerprint .. '|' .. owner
      call('SET', key, mine, 'PX', life)
      claimed[key] = mine
      reply[i + 1] = { 'go', goes }
    else
      reply[i + 1] = { 'later', 0 }
    end
  end
end
if changed then
  write_strip()
elseif clock then
  call('HSET', KEYS[2], 'clock', clock)
end
return reply
