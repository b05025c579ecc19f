-- Books a batch of messages into the earliest cells their rules allow, or says how long each waits.
--
-- Guarantee: atomic; no cell, reserve, slice or window is overbooked; a message is booked whole, its slot within the
-- horizon, or not at all, save the first of its lane; the work doesn't grow with the backlog or the tenants. Held
-- step by step against `sendslot_domain::schedule`, which explains the rules.
--
-- KEYS[1]      budget    hash  the numbers, as written by seed.lua; "factor" and "blocked", as slow.lua and block.lua write them; and
--                              "tenant:<name>" for each known tenant: weight, cap of an hour, cap of a day (0: none),
--                              packed as big-endian doubles
-- KEYS[2]      schedule  hash  cell (s since the epoch) -> recipients booked in it: 2^34 × in all + 2^17 × from bulk + slots
--                              only; and "state", packed as big-endian doubles: clock (ms), first and last cell there is, then
--                              for priority and for bulk: frontier (cell), virtual time (recipients per unit of weight), weight of
--                              all lines, virtual time at which the next line ends, when quiet lines were looked for
--                              (ms), the ends of all lines each times its weight, up to which cell unused turns have passed; then how often the cells have started anew, from which cell on priority and bulk have any room, slice and all,
--                              the factor that this is true for; and a credit: recipients that the windows have counted already though nobody
--                              has booked them yet, which (1 bulk's, 2 of an hour, 4 of a day), and from which cell up to which they may be booked without asking the windows;
--                              "hour" and "day": the windows, packed likewise: the present block, then for it and each after it up to the last
--                              with any booking: recipients of the window that ends with it in all and from bulk, and of the block itself likewise;
--                              "hour<block>" and "day<block>": those of past blocks, 2^26 × in all + from bulk
-- KEYS[3]      ends      zset  the lane's lines, "<weight>|<tenant>" by the virtual time at which each ends
-- KEYS[4]      asked     zset  the same by when somebody of each last asked (ms)
-- KEYS[5]      guard     hash  "slots_until" (ms): until when slots only are booked; "sent:<minute>", as in claim.lua: they count as sent
-- KEYS[5 + i]  tenant of run i  hash  "priority" and "bulk", packed as doubles: recipients ever queued and served, its
--                              last tag (virtual time), weight among the lines (0: not there), when somebody last asked (ms), last cell
--                              booked, first cell there is, and of the look at the line: when it began (ms), how far the line
--                              reached then and before whom nobody has asked since (recipients ever queued), when it last booked, how often the cells had
--                              started anew, and recipients ever queued when its line was opened; "<lane><cell>": 2^20 × recipients booked in the cell + recipients that go
--                              in it; windows of its own, as above; and "paused": until when (ms) it may not send, 0: until it is resumed,
--                              as pause.lua writes it
-- then, if addresses are asked for:
-- KEYS[#KEYS]  suppressed  hash  as in feed.lua
-- ARGV[1]  lane: "priority" or "bulk"
-- then four for each run of alike messages: tenant, recipients of one message, number of messages,
-- standing ("new", "again", "slot", a place in the line, or minus a place for one that leaves it; a message with a place
-- comes alone); then, if the caller has to know, the digest that the budget is thought to have; and behind that (or '', where he
-- hasn't), if addresses are asked for, their digests, 16 bytes each, in one
--
-- Returns one flat list of integers: now (ms), ⌊L⌋ (recipients/s), cells looked at, then for each run -1,
-- where the tenant is unknown, -3, where it is paused, -2, where a message costs more than a cap, or: messages booked, number of takes,
-- number of waits, the takes (cell (s), first turn, recipients, capacity of the cell), in order, and the waits (delay (ms), place (0:
-- the message keeps its standing), estimate (ms)) of the messages behind the booked ones.
-- While nobody may send, nothing is booked; the list is then: now (ms), -1, how long that is yet (ms).
-- If addresses are asked for, there follow those to whom nobody may send, each by how many were named before it, and their number; while
-- nobody may send they aren't looked up, and it is 0. What is booked doesn't depend on them.
-- Errors: NOBUDGET when Redis holds no budget, STALE when it has another digest.

local floor, ceil, min, max, call, huge = math.floor, math.ceil, math.min, math.max, redis.call, math.huge
local pack_numbers, unpack_numbers = struct.pack, struct.unpack
local ALL, BULK, GOING, BLOCK = 17179869184, 131072, 1048576, 67108864 -- 2^34, 2^17, 2^20, 2^26
local ONE = 1024
local SHORTEST_SLEEP, LONGEST_SLEEP, LONGEST_STANDSTILL, LONGEST_BLOCK = 1000, 900000, 5000, 960000
local QUIET, NOTED, CHECKED, ENDED_AT_ONCE, ENDS_KNOWN = 1200000, 60000, 1000, 16, 8
local SLICE_OPENS, SLICED_FROM, FARTHEST, GRANTED, PAST_CELLS, PASSES_AT_ONCE = 2, 4, 1000, 3, 3, 2
local SUPPRESSED_FOR, DIGEST = 259200, 16 -- s, as in sweep.lua; bytes

local lane = ARGV[1]
local bulk_lane = lane == 'bulk'

local budget
local last = #ARGV - (#ARGV - 1) % 4 -- the end of the runs
local expected = ARGV[last + 1] ~= '' and ARGV[last + 1]
local addresses = ARGV[last + 2]
if last == 5 and not expected then
  budget = call('HMGET', KEYS[1], 'book', 'factor', 'tenant:' .. ARGV[2], 'blocked')
else
  local wanted = { 'book', 'factor' }
  for i = 2, last, 4 do
    wanted[#wanted + 1] = 'tenant:' .. ARGV[i]
  end
  wanted[#wanted + 1] = 'digest'
  wanted[#wanted + 1] = 'blocked'
  budget = call('HMGET', KEYS[1], unpack(wanted))
end
if not budget[1] then
  return redis.error_reply('NOBUDGET the budget is not set up')
end
if expected and budget[#budget - 1] ~= expected then
  return redis.error_reply('STALE the budget is another')
end
local num, den, share_num, share_den, reserve, largest_shared, horizon, slice_num, slice_den, hour_cap, hour_bulk_cap,
  day_cap, day_bulk_cap = unpack_numbers('>ddddddddddddd', budget[1])
local factor = tonumber(budget[2] or ONE)
local blocked = budget[#budget]
if blocked then
  local time = call('TIME')
  local now = time[1] * 1000 + floor(time[2] / 1000)
  local left = tonumber(string.match(blocked, '^%d+')) - now
  if left > 0 and left <= LONGEST_BLOCK then
    return { now, -1, left, addresses and 0 }
  end
end
local lane_rate = num / den
if bulk_lane then
  lane_rate = lane_rate - reserve
end
lane_rate = lane_rate * factor / ONE
local reach_recipients = horizon * lane_rate / 1000

-- The state: this lane's part, and the other's, which stays as it is.
local clock, first_cell, last_cell, frontier, vtime, weight, next_end, checked, restarts, full, slowed = 0, 0, 0, 0, 0, 0, huge, 0, 0, 0, ONE
local total, passed, other_total, other_passed = 0, 0, 0, 0
local credit, credit_kind, credit_from, credit_to = 0, 0, 0, 0
local other_frontier, other_vtime, other_weight, other_end, other_checked, other_full = 0, 0, 0, huge, 0, 0
local kept = call('HMGET', KEYS[2], 'state', 'hour', 'day')
local state = kept[1]
if state then
  if bulk_lane then
    clock, first_cell, last_cell, other_frontier, other_vtime, other_weight, other_end, other_checked, other_total, other_passed,
      frontier, vtime, weight, next_end, checked, total, passed, restarts, other_full, full, slowed, credit, credit_kind,
      credit_from, credit_to = unpack_numbers('>ddddddddddddddddddddddddd', state)
  else
    clock, first_cell, last_cell, frontier, vtime, weight, next_end, checked, total, passed, other_frontier, other_vtime,
      other_weight, other_end, other_checked, other_total, other_passed, restarts, full, other_full, slowed, credit,
      credit_kind, credit_from, credit_to = unpack_numbers('>ddddddddddddddddddddddddd', state)
  end
end

if slowed ~= factor then
  full, other_full = 0, 0 -- a cell may have room again
end

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local told = now -- as the clock has it, set back or not
local suppressed -- of the addresses, those to whom nobody may send
if addresses then
  suppressed = {}
  local names = {}
  for at = 1, #addresses, DIGEST do
    names[#names + 1] = string.sub(addresses, at, at + DIGEST - 1)
  end
  for from = 1, #names, 4000 do
    local heard = call('HMGET', KEYS[#KEYS], unpack(names, from, min(from + 3999, #names)))
    for i = 1, #heard do
      local when = heard[i] and tonumber(string.sub(heard[i], 2))
      -- Further ahead than it would stand, it was noted by a clock since set back.
      if when and time[1] - when <= SUPPRESSED_FOR and when - time[1] <= SUPPRESSED_FOR then
        suppressed[#suppressed + 1] = from + i - 2
      end
    end
  end
  suppressed[#suppressed + 1] = #suppressed
end
if now < clock - LONGEST_STANDSTILL then
  -- Set back: start anew, both lanes. What the windows hold stays.
  local fields, cells = call('HKEYS', KEYS[2]), {}
  for i = 1, #fields do
    cells[#cells + 1] = tonumber(fields[i]) and fields[i]
  end
  for i = 1, #cells, 4000 do
    call('HDEL', KEYS[2], unpack(cells, i, min(i + 3999, #cells)))
  end
  frontier, other_frontier, full, other_full, first_cell, last_cell = 0, 0, 0, 0, 0, 0
  restarts = restarts + 1
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

-- The usual call by the shortest way: alike new messages of one tenant, nobody waiting, all in the cell at the frontier. To the
-- letter what the rules below come to; whatever is special goes on there.
local own = ARGV[2] -- the tenant whose account is read already
local guess = max(frontier, now_cell)
local first_found = call('HMGET', KEYS[6], lane, lane .. guess, 'paused')
local till = tonumber(first_found[3] or 1) or 0 -- what can't be read stands until it is resumed
if last == 5 and ARGV[5] == 'new' and (till > 0 and till <= told or till - told >= LONGEST_BLOCK) and weight == 0 and factor == ONE and num >= 2 * den and guess <= horizon_cell
  and state and clock <= now and first_cell >= now_cell - PAST_CELLS and budget[3] and first_found[1] then
  local own_weight, own_hour, own_day = 1, 0, 0
  if budget[3] ~= '' then
    own_weight, own_hour, own_day = unpack_numbers('>ddd', budget[3])
  end
  local queued, _, tag, line_weight, asked, last, first, since, reached, lowest, run, opened =
    unpack_numbers('>dddddddddddd', first_found[1])
  local cost, count = tonumber(ARGV[3]), tonumber(ARGV[4])
  local wanted = cost * count
  local newcomer = last <= now_cell + SLICE_OPENS or last > now_cell + FARTHEST
  local is_known = slice_num == 0 or last <= now_cell or last > now_cell + SLICE_OPENS
  if not is_known and last == guess and guess == now_cell + 1 then
    -- All that it holds near is in this cell.
    local most = 0
    for cell = guess, guess + 1 do
      local before, after = mul_div(cell, num, den), mul_div(cell + 1, num, den)
      if after - before >= SLICED_FROM then
        most = max(most, mul_div(after, slice_num, slice_den) - mul_div(before, slice_num, slice_den), 1)
      end
    end
    is_known, newcomer = true, floor(tonumber(first_found[2] or 0) / GOING) < max(floor(most / 2), 1)
  end
  local opens = newcomer and now_cell + SLICE_OPENS or (last - now_cell) * 4000 > horizon and now_cell - 1 or now_cell
  local near = slice_num > 0 and max(full, now_cell) <= min(opens, frontier - 1)
  local allowed = hour_cap == 0 and day_cap == 0 and credit == 0
    or credit >= wanted and (credit_kind % 2 == 1) == bulk_lane and guess >= credit_from and guess < credit_to
      and (hour_cap == 0 or cost <= (bulk_lane and hour_bulk_cap or hour_cap))
      and (day_cap == 0 or cost <= (bulk_lane and day_bulk_cap or day_cap))
  if not near and allowed and own_hour == 0 and own_day == 0 and line_weight == 0 and run == restarts and count > 0
    and (first == 0 or first >= now_cell) and is_known
    and (count == 1 or guess <= now_cell or guess > opens or slice_num == 0) then
    local packed = tonumber(call('HGET', KEYS[2], guess) or 0)
    local holds_before, holds_after = mul_div(guess, num, den), mul_div(guess + 1, num, den)
    local holds = holds_after - holds_before
    local rest = packed % ALL
    local slots = rest % BULK
    local all, bulk = (packed - rest) / ALL, (rest - slots) / BULK
    if guess == now_cell then
      local missed = max(floor((now % 1000) * holds / 1000) - all, 0)
      all, bulk = all + missed, bulk + missed
    end
    local sliced = 0
    if guess > opens and slice_num > 0 and holds >= SLICED_FROM then
      sliced = max(mul_div(holds_after, slice_num, slice_den) - mul_div(holds_before, slice_num, slice_den), 1)
    end
    local room = holds - sliced - all
    if bulk_lane then
      local reserved = mul_div(holds_after, share_num, share_den) - mul_div(holds_before, share_num, share_den)
      room = min(room, holds - reserved - sliced - bulk)
      bulk = bulk + wanted
    end
    if room >= wanted then
      if now >= checked + CHECKED or now < checked then
        checked = now
      end
      frontier = room > wanted and guess or guess + 1
      credit = credit > 0 and credit - wanted or 0
      if bulk_lane then
        state = pack_numbers('>ddddddddddddddddddddddddd', now, first_cell, max(last_cell, guess), other_frontier, other_vtime, other_weight, other_end,
          other_checked, other_total, other_passed, frontier, vtime, weight, next_end, checked, total, passed, restarts,
          other_full, full, factor, credit,
          credit_kind, credit_from, credit_to)
      else
        state = pack_numbers('>ddddddddddddddddddddddddd', now, first_cell, max(last_cell, guess), frontier, vtime, weight, next_end, checked, total, passed,
          other_frontier, other_vtime, other_weight, other_end, other_checked, other_total, other_passed, restarts, full, other_full,
          factor, credit,
          credit_kind, credit_from, credit_to)
      end
      call('HSET', KEYS[2], 'state', state, guess, (all + wanted) * ALL + bulk * BULK + slots)
      call('HSET', KEYS[6], lane .. guess, tonumber(first_found[2] or 0) + wanted * GOING + wanted, lane,
        pack_numbers('>dddddddddddd', queued, queued, tag, line_weight, asked, max(last, guess), first == 0 and guess or min(first, guess),
          since, reached, lowest, run, opened))
      local answer = { now, largest_shared, 1, count, 1, 0, guess, all, wanted, holds }
      for i = 1, suppressed and #suppressed or 0 do
        answer[10 + i] = suppressed[i]
      end
      return answer
    end
  end
end

-- What a cell holds, and of it what is kept: priority's part, from bulk, and the slice.
local function measure(cell)
  local before, after = mul_div(cell, num, den), mul_div(cell + 1, num, den)
  if factor < ONE then
    before, after = mul_div(before, factor, ONE), mul_div(after, factor, ONE)
  end
  local holds, reserved, sliced = after - before, 0, 0
  if bulk_lane and share_num > 0 then
    reserved = mul_div(after, share_num, share_den) - mul_div(before, share_num, share_den)
  end
  if slice_num > 0 and holds >= SLICED_FROM then
    sliced = max(mul_div(after, slice_num, slice_den) - mul_div(before, slice_num, slice_den), 1)
  end
  return holds, reserved, sliced
end

-- The first cell from `cell` on that holds anything for the lane. At two a second and more, all do.
local next_with_capacity
if floor(num / den) * factor < 2 * ONE then
  next_with_capacity = function(cell)
    local n = mul_div(cell, num, den)
    n = mul_div(n, factor, ONE)
    if bulk_lane and share_num > 0 then
      n = mul_div(n - mul_div(n, share_num, share_den), share_den, share_den - share_num)
    end
    n = n + 1
    local rest = n % factor
    n = (n - rest) / factor * ONE + ceil(rest * ONE / factor)
    rest = n % num
    local whole = (n - rest) / num * den
    if rest == 0 then
      return whole - 1
    end
    return whole + floor((rest * den - 1) / num)
  end
end

local held = {} -- cells read so far: cell -> recipients booked, packed
local touched = {} -- cells to write back; some may be named twice
local near_read = false
local looked = 0

-- Cells as they are in Redis, into `held`.
local function read_cells(names)
  looked = looked + #names
  local values = call('HMGET', KEYS[2], unpack(names))
  for i = 1, #names do
    held[names[i]] = held[names[i]] or tonumber(values[i] or 0)
  end
end

-- Recipients booked in a cell, in all, from bulk, and slots only. Turns of the present second that are over count as
-- bulk's; the turn under way may still be used.
local function booked_in(cell, holds)
  local packed = held[cell]
  local rest = packed % ALL
  local slots = rest % BULK
  local all, bulk = (packed - rest) / ALL, (rest - slots) / BULK
  if cell == now_cell then
    local missed = max(floor((now % 1000) * holds / 1000) - all, 0)
    all, bulk = all + missed, bulk + missed
  end
  return all, bulk, slots
end

-- The lines of the lane, and the windows. What works on them is made when it is needed, which is seldom: to make a function
-- costs as much as a call to the server.
local see_next_end, end_line, keep_line, end_next_line, serve, rank_of, turns_before, shorten
local ends_known -- the lines that end first; nil when not read, or not valid any more
local load_windows, windows_hold, count_in_windows, count_takes, save_windows, window_opens
local windows -- the budget's; nil for none

local accounts = {} -- by tenant
local pauses = {} -- by tenant, whether it may not send
local slots_until, slots_in = 0, {} -- until when slots only are booked (ms), and by minute how many recipients

local reply = { now, largest_shared, 0 }
local size = 3

-- Whether a tenant's line has anyone in it.
local function account_open(account, capped)
  if now > account.asked + QUIET then
    return false
  elseif capped then
    return account.served < account.queued
  end
  return account.weight > 0 and account.tag > vtime
end

-- Time (ms) until the slot of a message with so many recipients before it, served at `rate`.
local function estimate(account, cost, rank, rate)
  local from = max(frontier * 1000, now)
  if account.windows then
    from = max(from, window_opens(account.windows, cost) * 1000)
  end
  return from - now + floor(rank * 1000 / rate)
end

for i = 2, last, 4 do
  local run = size
  local name, cost, count, standing = ARGV[i], tonumber(ARGV[i + 1]), 0, ARGV[i + 3]
  local settings = budget[(i + 10) / 4]
  local own_weight, own_hour, own_day = 1, 0, 0
  if settings and settings ~= '' then
    own_weight, own_hour, own_day = unpack_numbers('>ddd', settings)
  end
  local capped = own_hour > 0 or own_day > 0
  local own_rate = lane_rate
  if capped then
    own_rate = min(own_rate, own_hour > 0 and own_hour / 3600 or huge, own_day > 0 and own_day / 86400 or huge)
  end
  if not windows_hold and (hour_cap > 0 or day_cap > 0 or capped or credit > 0) then
    -- One is a list of numbers as it is packed, with what it is of: the present block, then for it and each after it in
    -- which anything is booked, the window's sums and the block's counts.
    local function load_window(key, packed, name, seconds, blocks, cap, bulk_cap)
      local present = floor(now_cell / seconds)
      local old_size = packed and #packed / 8 or 0
      local old = packed and { unpack_numbers('>' .. string.rep('d', old_size), packed) }
      local window = old and old[1] >= present and old or { present, 0, 0, 0, 0 }
      window.key, window.name, window.seconds, window.blocks = key, name, seconds, blocks
      window.cap, window.bulk_cap, window.size = cap, bulk_cap, 5
      if window == old then
        window.size = old_size
        return window
      end
      window.changed = true
      if not old then
        return window
      end
      -- Time has moved on by so many blocks: those past go to fields of their own, those too old go.
      local before, steps, kept = old[1], present - old[1], (old_size - 1) / 4
      local past, gone, leaving = {}, {}, {}
      for i = 0, min(steps, kept) - 1 do
        if old[4 + 4 * i] > 0 then
          past[#past + 1] = name .. (before + i)
          past[#past + 1] = old[4 + 4 * i] * BLOCK + old[5 + 4 * i]
        end
      end
      if #past > 0 then
        call('HSET', key, unpack(past))
      end
      if steps < kept then
        for at = 2, 1 + 4 * (kept - steps) do
          window[at] = old[at + 4 * steps]
        end
        window.size = 1 + 4 * (kept - steps)
      elseif steps <= blocks + kept then
        -- The present block is new: its sums are the last block's, less what has left the window since.
        for block = before + kept, present do
          leaving[#leaving + 1] = name .. (block - 1 - blocks)
        end
        window[2], window[3] = old[old_size - 3], old[old_size - 2]
        local counts = call('HMGET', key, unpack(leaving))
        for k = 1, #leaving do
          local count = tonumber(counts[k] or 0)
          window[2], window[3] = window[2] - floor(count / BLOCK), window[3] - count % BLOCK
        end
      end
      for block = before - blocks, min(present - blocks, before + kept) - 1 do
        gone[#gone + 1] = name .. block
      end
      if #gone > 0 then
        call('HDEL', key, unpack(gone))
      end
      return window
    end

    load_windows = function(key, packed, hour, hour_bulk, day, day_bulk)
      local loaded = {}
      if hour > 0 then
        loaded[1] = load_window(key, packed[1], 'hour', 61, 60, hour, hour_bulk)
      end
      if day > 0 then
        loaded[#loaded + 1] = load_window(key, packed[2], 'day', 901, 96, day, day_bulk)
      end
      return loaded
    end

    -- Where the sums of a block stand. What isn't kept yet has the sums of the block before it, less what leaves the window.
    local function sums_of(window, block)
      local at = 2 + 4 * (max(block, window[1]) - window[1])
      if at > window.size then
        local leaving = {}
        local kept = (window.size - 1) / 4
        for k = window[1] + kept, max(block, window[1]) do
          leaving[#leaving + 1] = window.name .. (k - 1 - window.blocks)
        end
        local counts = call('HMGET', window.key, unpack(leaving))
        for k = 1, #leaving do
          local count, last = tonumber(counts[k] or 0), window.size
          window[last + 1], window[last + 2] = window[last - 3] - floor(count / BLOCK), window[last - 2] - count % BLOCK
          window[last + 3], window[last + 4] = 0, 0
          window.size = last + 4
        end
        window.changed = true
      end
      return at
    end

    -- How many messages of this cost the windows still hold that begin in this cell; and if none, the cell to go on from.
    windows_hold = function(of, cell, cost)
      local messages = huge
      for w = 1, #of do
        local window = of[w]
        local block = max(floor(cell / window.seconds), window[1])
        if block <= window[1] + ceil(900 / window.seconds) + 1 then
          local room = huge
          for at = sums_of(window, block), window.size, 4 do
            room = min(room, window.cap - window[at])
            if bulk_lane then
              room = min(room, window.bulk_cap - window[at + 1])
            end
          end
          if room < cost then
            return 0, (block + 1) * window.seconds
          end
          messages = min(messages, floor(room / cost))
        end
      end
      return messages
    end

    -- Counts recipients that go in a cell.
    count_in_windows = function(of, cell, recipients)
      for w = 1, #of do
        local window = of[w]
        local block = min(floor(cell / window.seconds), window[1] + ceil(900 / window.seconds) + 1)
        local of_block = sums_of(window, block)
        local of_bulk = bulk_lane and recipients or 0
        window.changed = true
        window[of_block + 2], window[of_block + 3] = window[of_block + 2] + recipients, window[of_block + 3] + of_bulk
        for at = of_block, window.size, 4 do
          window[at], window[at + 1] = window[at] + recipients, window[at + 1] + of_bulk
        end
      end
    end

    -- Counts whole messages in the windows: their takes, and each goes with its `goes_with`-th recipient.
    count_takes = function(account, from, to, cost, goes_with)
      local x = -goes_with
      for at = from + 1, to, 4 do
        local part = reply[at + 2]
        local going = floor((x + part) / cost) - floor(x / cost)
        x = x + part
        if going > 0 then
          if windows then
            count_in_windows(windows, reply[at], going * cost)
          end
          if account.windows then
            count_in_windows(account.windows, reply[at], going * cost)
          end
        end
      end
    end

    -- Those that have changed, as fields and values for HSET.
    save_windows = function(of, fields)
      for w = 1, #of do
        local window = of[w]
        if window.changed then
          local format = '>' .. string.rep('d', window.size)
          fields[#fields + 1] = window.name
          fields[#fields + 1] = pack_numbers(format, unpack(window, 1, window.size))
        end
      end
    end

    -- The first cell in which they have room for a message.
    window_opens = function(of, cost)
      local cell, messages, onward = now_cell, 0, nil
      while true do
        messages, onward = windows_hold(of, cell, cost)
        if messages > 0 then
          return cell
        end
        cell = onward
      end
    end

    -- What is left of the credit is given back first, so that all is counted as it is.
    if credit > 0 then
      for w = 1, 2 do
        if floor(credit_kind / 2 ^ w) % 2 == 1 and kept[w + 1] then
          local size, seconds, of_bulk = #kept[w + 1] / 8, w == 1 and 61 or 901, credit * (credit_kind % 2)
          local format = '>' .. string.rep('d', size)
          local window = { unpack_numbers(format, kept[w + 1]) }
          local of_block = 2 + 4 * (floor(credit_from / seconds) - window[1])
          window[of_block + 2] = window[of_block + 2] - credit
          window[of_block + 3] = window[of_block + 3] - of_bulk
          for at = of_block, size, 4 do
            window[at], window[at + 1] = window[at] - credit, window[at + 1] - of_bulk
          end
          kept[w + 1] = pack_numbers(format, unpack(window, 1, size))
          call('HSET', KEYS[2], w == 1 and 'hour' or 'day', kept[w + 1])
        end
      end
      credit = 0
    end
    if hour_cap > 0 or day_cap > 0 then
      windows = load_windows(KEYS[2], { kept[2], kept[3] }, hour_cap, hour_bulk_cap, day_cap, day_bulk_cap)
    end
  end

  -- One that may not send is booked nothing; who leaves its line may leave.
  local account, found = accounts[name], nil
  local leaving = (tonumber(standing) or 0) < 0
  if settings and not account and not leaving and pauses[name] == nil then
    local key = KEYS[5 + (i + 2) / 4]
    if capped then
      found = call('HMGET', key, lane, 'hour', 'paused', 'day')
    else
      found = name == own and first_found or call('HMGET', key, lane, lane .. guess, 'paused')
    end
    local till = tonumber(found[3] or 1) or 0
    pauses[name] = till == 0 or till > told and till - told < LONGEST_BLOCK
  end

  if not settings then
    size = run + 1
    reply[size] = -1
  elseif pauses[name] and not leaving then
    size = run + 1
    reply[size] = -3
  elseif not leaving and (own_hour > 0 and cost > own_hour or own_day > 0 and cost > own_day
    or hour_cap > 0 and cost > (bulk_lane and hour_bulk_cap or hour_cap)
    or day_cap > 0 and cost > (bulk_lane and day_bulk_cap or day_cap)) then
    size = run + 1
    reply[size] = -2
    if tonumber(standing) then
      -- It leaves its line.
      standing, count = '-' .. standing, 1
    end
  else
    count = tonumber(ARGV[i + 2])
    reply[run + 1], reply[run + 2], reply[run + 3] = 0, 0, 0
    size = run + 3
  end
  local takes = size
  local booked, waiting = 0, 0
  if count > 0 and not account then
    local key = KEYS[5 + (i + 2) / 4]
    account = { key = key, queued = 0, served = 0, tag = 0, weight = 0, asked = 0, last = 0, first = 0,
      since = 0, reached = 0, lowest = 0, run = 0, opened = 0, cells = {}, guess = -1, taken_near = 0 }
    if capped then
      found = found or call('HMGET', key, lane, 'hour', 'paused', 'day')
    else
      account.guess = guess
      found = found or name == own and first_found or call('HMGET', key, lane, lane .. guess)
      account.guessed = tonumber(found[2] or 0)
    end
    if found[1] then
      account.queued, account.served, account.tag, account.weight, account.asked, account.last, account.first,
        account.since, account.reached, account.lowest, account.run, account.opened = unpack_numbers('>dddddddddddd', found[1])
    end
    if account.run ~= restarts then
      -- What it booked before the cells started anew is no more.
      local names = {}
      if account.first > 0 then
        for cell = account.first, account.last do
          names[#names + 1] = lane .. cell
        end
      end
      for k = 1, #names, 4000 do
        call('HDEL', key, unpack(names, k, min(k + 3999, #names)))
      end
      account.run, account.first, account.last, account.guessed = restarts, 0, 0, 0
    end
    if capped then
      account.windows = load_windows(key, { found[2], found[4] }, own_hour, own_hour, own_day, own_day)
    end
    accounts[name] = account
  end

  local goes_with = min(cost, largest_shared)
  local again, fresh, slot_only = standing == 'again', standing == 'new', standing == 'slot'
  local given = not again and not fresh and not slot_only and tonumber(standing)
  local leaves = given and given < 0
  if leaves then
    given = -given
  end
  local member = own_weight .. '|' .. name
  local together = true -- first, all of the run at once; then, one by one, what didn't fit
  local joined = false -- whether the line has grown and Redis doesn't know yet

  while booked + waiting < count do
    if (weight > 0 or account.weight > 0) and not serve then
      -- When the next of them ends.
      see_next_end = function()
        next_end = huge
        if weight > 0 then
          local head = call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
          next_end = tonumber(head[2] or huge)
        end
      end

      -- Recipients that all cells before one hold for the lane.
      turns_before = function(cell)
        local all = mul_div(mul_div(cell, num, den), factor, ONE)
        if bulk_lane and share_num > 0 then
          all = all - mul_div(all, share_num, share_den)
        end
        return all
      end

      local function weight_of(member)
        return tonumber(string.match(member, '^(%d+)|') or 0)
      end

      -- A line is over that ends at a virtual time. Answers whether it was there.
      end_line = function(member, line_ends)
        local was_there = call('ZREM', KEYS[3], member) == 1
        call('ZREM', KEYS[4], member)
        if was_there then
          local its = weight_of(member)
          weight = weight - its
          total = total - its * line_ends
          if weight == 0 then
            total = 0
          end
        end
        ends_known = nil
        return was_there
      end

      -- A line is there until a virtual time, once until another; those of an account, by its weight. It may have been ended by
      -- a look for quiet lines before the clock was set back.
      keep_line = function(account, member, once)
        if call('ZADD', KEYS[3], account.tag, member) == 1 then
          weight = weight + account.weight
          call('ZADD', KEYS[4], account.asked, member)
        elseif once then
          total = total - account.weight * once
          if weight == account.weight then
            total = 0 -- as it was the only one
          end
        end
        total = total + account.weight * account.tag
        ends_known = nil
        see_next_end()
      end

      end_next_line = function()
        local head = call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
        if head[1] then
          end_line(head[1], tonumber(head[2]))
        else
          weight, total = 0, 0 -- Redis has lost the lines, or they were never there
        end
        see_next_end()
      end

      -- So many recipients were booked out of the lines.
      serve = function(cost)
        local left = cost
        while weight > 0 do
          local step = left / weight
          if vtime + step < next_end then
            vtime = vtime + step
            return
          end
          if next_end > vtime then
            left = left - (next_end - vtime) * weight
            vtime = next_end
          end
          end_next_line()
          if left <= 0 then
            return
          end
        end
      end

      -- So many recipients of a line are not there any more. What virtual time has passed already is not taken off again.
      shorten = function(account, member, gone)
        if gone > 0 and account.weight > 0 then
          local once = account.tag
          local shorter = once - gone / account.weight
          local needed = vtime + (account.queued - account.served) / account.weight
          account.tag = min(once, max(shorter, needed))
          if account.tag > vtime then
            keep_line(account, member, once)
          else
            end_line(member, once)
            account.weight = 0
            see_next_end()
          end
        end
      end

      -- Recipients of all lines before a turn that begins at `start` (virtual time), for one of the line `own`.
      rank_of = function(start, own, own_behind)
        if not ends_known then
          ends_known = weight > 0 and call('ZRANGE', KEYS[3], 0, ENDS_KNOWN, 'WITHSCORES') or {}
        end
        local rank, known = (start - vtime) * weight, 0
        for i = 1, #ends_known, 2 do
          local member, line_ends = ends_known[i], tonumber(ends_known[i + 1])
          if line_ends >= start or known == ENDS_KNOWN then
            break
          end
          if member ~= own then
            known = known + 1
            rank = rank - weight_of(member) * (start - line_ends)
          end
        end
        -- No more than all that waits, its own mail from itself on apart.
        return max(min(rank, total - vtime * weight - own_behind), 0)
      end
    end
    if now >= checked + CHECKED or now < checked then
      checked = now
      if weight > 0 then
        local oldest = call('ZRANGE', KEYS[4], 0, ENDED_AT_ONCE - 1, 'WITHSCORES')
        local ended = false
        for i = 1, #oldest, 2 do
          if now <= tonumber(oldest[i + 1]) + QUIET then
            break
          end
          local line_ends = tonumber(call('ZSCORE', KEYS[3], oldest[i]) or 0)
          ended = end_line(oldest[i], line_ends) or ended
        end
        if ended then
          see_next_end()
        end
      end
    end

    -- Turns that nobody took pass: of a time in which nobody asked, two seconds'.
    if weight > 0 then
      local from = max(now_cell - PASSES_AT_ONCE, frontier, passed)
      passed = now_cell
      if from < now_cell then
        serve(turns_before(now_cell) - turns_before(from))
      end
    end

    -- Puts the tenant's place among the lines right, as things have changed since it was last seen.
    if account.weight > 0 then
      local quiet = now > account.asked + QUIET
      if account.tag <= vtime or capped or quiet then
        -- One that ends as another does may still be there.
        if end_line(account.weight .. '|' .. name, account.tag) then
          see_next_end()
        end
        account.weight, account.tag = 0, 0
      elseif account.weight ~= own_weight then
        local recipients = (account.tag - vtime) * account.weight
        end_line(account.weight .. '|' .. name, account.tag)
        account.tag = vtime + recipients / own_weight
        account.weight = own_weight
        keep_line(account, member)
      end
    end
    local open = account_open(account, capped)
    if not open then
      account.served = account.queued
    end
    if given then
      if now >= account.asked + NOTED or now < account.asked then
        if account.weight > 0 then
          call('ZADD', KEYS[4], 'XX', now, member)
        end
        account.asked = now
        open = account_open(account, capped)
      end
      if not (open and given > account.opened and given <= account.queued) then
        -- A place of a line that has ended is none.
        given, fresh = nil, true
        if leaves then
          leaves, count = false, 0
          break
        end
      end
    end
    if given then
      -- After a look at the line, those that haven't asked are gone, and the line moves up.
      local first_one = max(given - cost, 0)
      account.lowest = min(account.lowest, first_one)
      local gone, looked_at = 0, false
      if now < account.since or now >= account.since + QUIET then
        gone = max(min(account.lowest, account.reached) - account.served, 0)
        account.since, account.reached, account.lowest = now, account.queued, first_one
        account.served = account.served + gone
        looked_at = true
      end
      if looked_at then
        if account.weight > 0 then
          shorten(account, member, gone)
        end
        open = account_open(account, capped)
      end
      if leaves then
        account.served = min(account.queued, account.served + cost)
        if open and not capped then
          shorten(account, member, cost)
        end
        count = 0
        break
      end
    end
    -- Its place, in its own line and among all.
    local place
    if given then
      place = max(given, account.served + cost)
    elseif again then
      place = account.served + cost
    else
      place = account.queued + cost
    end
    local before = place - cost - account.served
    local start, rank = 0, 0
    if again or not open and not capped then
      rank = 0
    elseif capped then
      rank = before
    else
      start = max(account.tag, vtime) - (account.queued + cost - place) / own_weight
      rank = rank_of(start, member, (account.tag - start) * account.weight)
    end
    local pressed = weight > 0
    local newcomer = (fresh or slot_only) and not open
      and (account.last <= now_cell + SLICE_OPENS or account.last > now_cell + FARTHEST)
    if newcomer and account.last > now_cell then
      -- Of what is kept near it may hold half a slice.
      if not account.near then
        local near = call('HMGET', account.key, lane .. (now_cell + 1), lane .. (now_cell + SLICE_OPENS))
        account.near = floor(tonumber(near[1] or 0) / GOING) + floor(tonumber(near[2] or 0) / GOING)
      end
      local _, _, one = measure(now_cell + 1)
      local _, _, two = measure(now_cell + SLICE_OPENS)
      newcomer = account.near + account.taken_near < max(floor(max(one, two) / 2), 1)
    end

    -- Whose turn it is.
    local first = frontier <= now_cell or next_with_capacity and next_with_capacity(now_cell) >= frontier or false
    local within, idle = false, false
    local in_turn = again or not open and (capped or not pressed)
    if not in_turn then
      within = estimate(account, cost, rank, own_rate) <= floor(horizon / 2) + floor(horizon / 24) + 1000
      idle = (max(frontier * 1000, now) - now <= floor(horizon / 4) or first)
        and (before == 0 or before * 4 <= reach_recipients)
      in_turn = within or idle
    end

    local messages = 1
    if together and in_turn and not pressed and not given and not (newcomer and slice_num > 0) then
      messages = count - booked - waiting
      together = false
    end

    local got, far = 0, false
    -- The last cell whose slice it may use.
    local opens = now_cell
    if newcomer then
      opens = now_cell + SLICE_OPENS
    elseif (fresh or slot_only) and (account.last - now_cell) * 4000 > horizon then
      opens = now_cell - 1 -- it would overtake its own
    end
    -- Near: whole messages only.
    local upto = min(opens, frontier - 1)
    if slice_num > 0 and not slot_only and (newcomer or in_turn) and max(full, now_cell) <= upto then
      if not near_read then
        near_read = true
        local names = { now_cell, now_cell + 1, now_cell + SLICE_OPENS }
        if frontier > now_cell + SLICE_OPENS then
          names[4] = frontier
        end
        read_cells(names)
      end
      local begun = max(full, now_cell)
      for _ = 1, messages do
        -- Room in all for one?
        local room, start_cell = 0, nil
        for cell = begun, upto do
          local holds, reserved = measure(cell)
          local all, bulk = booked_in(cell, holds)
          local part = holds - all
          if bulk_lane then
            part = min(part, holds - reserved - bulk)
          end
          if part > 0 then
            start_cell = start_cell or cell
            room = room + part
          end
          if room >= cost then
            break
          end
        end
        if room < cost then
          break
        end
        if windows and windows_hold(windows, start_cell, cost) == 0
          or account.windows and windows_hold(account.windows, start_cell, cost) == 0 then
          break
        end
        local left, dealt = cost, 0
        local cell = start_cell
        local goes
        while left > 0 do
          local holds, reserved = measure(cell)
          local all, bulk, slots = booked_in(cell, holds)
          local part = holds - all
          if bulk_lane then
            part = min(part, holds - reserved - bulk)
          end
          part = min(part, left)
          if part > 0 then
            reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = cell, all, part, holds
            size = size + 4
            held[cell] = (all + part) * ALL + (bulk_lane and bulk + part or bulk) * BULK + (slot_only and slots + part or slots)
            if touched[#touched] ~= cell then
              touched[#touched + 1] = cell
            end
            if dealt < goes_with then
              goes = cell
            end
            if cell > now_cell and cell <= now_cell + SLICE_OPENS then
              account.taken_near = account.taken_near + part
            end
            dealt = dealt + part
            left = left - part
            account.last = max(account.last, cell)
          end
          cell = cell + 1
        end
        begun = start_cell
        if windows then
          count_in_windows(windows, goes, cost)
        end
        if account.windows then
          count_in_windows(account.windows, goes, cost)
        end
        got = got + cost
        if newcomer and account.last > now_cell + SLICE_OPENS then
          break
        end
      end
      full = max(full, now_cell)
      while full <= upto do
        local holds, reserved = measure(full)
        local all, bulk = booked_in(full, holds)
        if holds - all > 0 and not (bulk_lane and holds - reserved - bulk <= 0) then
          break
        end
        full = full + 1
      end
    end

    -- Far, from the frontier on; what is left of it, at most twice: the first of a lane, and what had a slot before, may reach
    -- past the horizon.
    local reach = horizon_cell
    local near_got = got
    while in_turn and got < cost * messages and (not far or messages == 1 and (first or again) and reach ~= farthest_cell) do
      if far then
        reach = farthest_cell
      end
      far = true
      local wanted = cost * messages - near_got
      local left, allowed = wanted, 0
      local cell = max(frontier, now_cell)
      local follows = true
      if slot_only and cell <= now_cell + GRANTED then
        -- Past what the guard may have granted already.
        cell, follows = now_cell + GRANTED + 1, false
      end
      local behind = frontier -- from where the message under way searches
      local far_takes = size
      local skipped = false -- whether the budget's windows had no room somewhere
      while true do
        if next_with_capacity then
          cell = next_with_capacity(cell)
        end
        local dealt = wanted - left
        local partial = dealt % cost
        if cell > reach and (partial == 0 or wanted > cost or partial < goes_with) then
          break
        end
        local blocked = false
        if partial == 0 and allowed == 0 then
          if windows or account.windows then
            count_takes(account, far_takes, size, cost, goes_with)
            far_takes = size
          end
          allowed = left
          if windows then
            local hold, onward = windows_hold(windows, cell, cost)
            if hold == 0 then
              cell, blocked, skipped = onward, true, true
            end
            allowed = min(allowed, hold * cost)
          end
          if account.windows and not blocked then
            local hold, onward = windows_hold(account.windows, cell, cost)
            if hold == 0 then
              if follows then
                frontier, follows = cell, false
              end
              cell, blocked = onward, true
            end
            allowed = min(allowed, hold * cost)
          end
        end
        if not blocked then
          if not held[cell] then
            local more = 0
            if num >= den then
              more = min(floor(left * den / num), 255, max(horizon_cell - cell, 0))
            end
            local names = {}
            for k = 0, more do
              names[k + 1] = cell + k
            end
            read_cells(names)
          end
          local holds, reserved, sliced = measure(cell)
          if cell <= opens then
            sliced = 0
          end
          local all, bulk, slots = booked_in(cell, holds)
          local room = holds - sliced - all
          if bulk_lane then
            room = min(room, holds - reserved - sliced - bulk)
          end
          local part = max(min(room, left, allowed), 0)
          if part > 0 then
            reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = cell, all, part, holds
            size = size + 4
            held[cell] = (all + part) * ALL + (bulk_lane and bulk + part or bulk) * BULK + (slot_only and slots + part or slots)
            if touched[#touched] ~= cell then
              touched[#touched + 1] = cell
            end
            if cell > now_cell and cell <= now_cell + SLICE_OPENS then
              account.taken_near = account.taken_near + part
            end
            left = left - part
            allowed = allowed - part
          end
          local last = (wanted - left) % cost
          if part > last then
            behind = last > 0 and cell or room > part and cell or cell + 1
          end
          if room <= part then
            cell = cell + 1
          end
          if left == 0 then
            break
          end
        end
      end
      -- Where the windows hold no more within reach, whoever waits sleeps until they do.
      while skipped and left == cost and wanted == cost do
        local hold, onward = windows_hold(windows, cell, cost)
        if hold > 0 then
          break
        end
        cell = next_with_capacity and next_with_capacity(onward) or onward
      end
      -- Of several, one that found no room searches once more, alone.
      if follows then
        frontier = left > 0 and wanted > cost and behind or cell
      end
      local got_far = wanted - left

      -- Give back what makes no whole message.
      local over = got_far % cost
      got_far = got_far - over
      while over > 0 do
        local back = reply[size - 3]
        local part = min(over, reply[size - 1])
        held[back] = held[back] - part * ALL - (bulk_lane and part * BULK or 0) - (slot_only and part or 0)
        if follows and wanted == cost then
          frontier = back
        end
        if back > now_cell and back <= now_cell + SLICE_OPENS then
          account.taken_near = account.taken_near - part
        end
        over = over - part
        reply[size - 1] = reply[size - 1] - part
        if reply[size - 1] == 0 then
          reply[size - 3], reply[size - 2], reply[size - 1], reply[size] = nil, nil, nil, nil
          size = size - 4
        end
      end
      got = near_got + got_far
      if got_far > 0 then
        account.last = max(account.last, reply[size - 3])
        if windows or account.windows then
          count_takes(account, far_takes, size, cost, goes_with)
        end
      end
    end

    if got > 0 then
      booked = booked + got / cost
      local in_far = far and got > near_got
      if given then
        account.served = min(account.queued, account.served + cost)
        if open and not capped then
          serve(cost)
        end
      elseif in_far and pressed and not capped and not again then
        if not open then
          account.opened = account.queued
          account.since, account.reached, account.lowest = now, account.queued, huge
        end
        account.queued = account.queued + cost
        account.served = account.served + cost
        if now >= account.asked + NOTED or now < account.asked then
          account.asked = now
          if account.weight > 0 then
            call('ZADD', KEYS[4], 'XX', now, member)
          end
        end
        local once = account.weight > 0 and account.tag or nil
        account.tag = max(account.tag, vtime) + cost / own_weight
        account.weight = own_weight
        keep_line(account, member, once)
        serve(cost)
      end
    elseif messages == 1 then
      -- Wait. The waits come behind the takes: once one message of a run waits, so do those behind it.
      if waiting == 0 then
        reply[run + 1], reply[run + 2] = booked, (size - takes) / 4
      end
      if fresh then
        if not open then
          account.opened = account.queued
          account.since, account.reached, account.lowest = now, account.queued, huge
        end
        account.queued = place
        if now >= account.asked + NOTED or now < account.asked then
          account.asked = now
          if account.weight > 0 then
            call('ZADD', KEYS[4], 'XX', now, member)
          end
        end
        if not capped then
          local once = account.weight > 0 and account.tag or nil
          account.tag = max(account.tag, vtime) + cost / own_weight
          account.weight = own_weight
          if not serve then
            -- It is the only line there is.
            call('ZADD', KEYS[3], account.tag, member)
            call('ZADD', KEYS[4], account.asked, member)
            weight, next_end, total = own_weight, account.tag, own_weight * account.tag
          elseif waiting == 0 then
            keep_line(account, member, once)
          else
            -- Redis is told at the end of the run.
            total = weight == own_weight and 0 or total - own_weight * once
            total = total + own_weight * account.tag
            joined = true
          end
        end
      end
      local left = estimate(account, cost, rank, own_rate)
      local rest = max(left - floor(horizon / 2), 0)
      local hop = min(rest, LONGEST_SLEEP)
      if rest > LONGEST_SLEEP and fresh then
        hop = rest % LONGEST_SLEEP
      end
      if again then
        hop, left = LONGEST_SLEEP, max(left, LONGEST_SLEEP) -- until then there is no room
      end
      reply[size + 1], reply[size + 2], reply[size + 3] = max(hop, SHORTEST_SLEEP), (given or fresh) and place or 0, left
      size = size + 3
      waiting = waiting + 1
    end
  end
  if count > 0 then
    if waiting == 0 then
      reply[run + 1], reply[run + 2] = booked, (size - takes) / 4
    end
    reply[run + 3] = waiting
    if joined then
      call('ZADD', KEYS[3], account.tag, member)
      ends_known = nil
      see_next_end()
    end
    -- What the tenant holds, by cell: recipients booked, and those that go.
    local x = -goes_with
    for at = takes + 1, takes + 4 * reply[run + 2], 4 do
      local cell, part = reply[at], reply[at + 2]
      local going = floor((x + part) / cost) - floor(x / cost)
      x = x + part
      account.cells[cell] = (account.cells[cell] or 0) + part * GOING + going * cost
      if slot_only then
        slots_until = max(slots_until, (cell + 1) * 1000)
        local minute = floor(cell / 60)
        slots_in[minute] = (slots_in[minute] or 0) + going * cost
      end
    end
  end
end
reply[3] = looked

-- Drop the past: a second's cell for each second gone by, after a pause at most 2,000 a call. The guard looks back a little.
local oldest = now_cell - PAST_CELLS
if first_cell < oldest then
  local upto = min(oldest, last_cell + 1, first_cell + 2000)
  if first_cell < upto then
    local past = {}
    for cell = first_cell, upto - 1 do
      past[#past + 1] = cell
    end
    call('HDEL', KEYS[2], unpack(past))
    first_cell = upto
  end
  if first_cell > last_cell then
    first_cell = oldest
  end
end

-- Write back what changed.
for _, account in pairs(accounts) do
  local args, several = {}, {}
  for cell, more in pairs(account.cells) do
    if cell == account.guess then
      args[#args + 1] = lane .. cell
      args[#args + 1] = account.guessed + more
    else
      several[#several + 1] = cell
    end
    account.first = account.first == 0 and cell or min(account.first, cell)
  end
  if #several == 1 then
    call('HINCRBY', account.key, lane .. several[1], string.format('%.0f', account.cells[several[1]]))
  elseif #several > 1 then
    local names = {}
    for k = 1, #several do
      names[k] = lane .. several[k]
    end
    for from = 1, #names, 2000 do
      local upto = min(from + 1999, #names)
      local values = call('HMGET', account.key, unpack(names, from, upto))
      local changed = {}
      for k = from, upto do
        changed[#changed + 1] = names[k]
        changed[#changed + 1] = tonumber(values[k - from + 1] or 0) + account.cells[several[k]]
      end
      call('HSET', account.key, unpack(changed))
    end
  end
  if account.first > 0 and account.first < now_cell then
    local upto = min(now_cell, account.last + 1, account.first + 4000)
    local past = {}
    for cell = account.first, upto - 1 do
      past[#past + 1] = lane .. cell
    end
    if #past > 0 then
      call('HDEL', account.key, unpack(past))
    end
    account.first = upto > account.last and 0 or upto
  end
  args[#args + 1] = lane
  args[#args + 1] = pack_numbers('>dddddddddddd', account.queued, account.served, account.tag, account.weight, account.asked,
    account.last, account.first, account.since, account.reached, account.lowest, account.run,
    account.opened)
  if account.windows then
    save_windows(account.windows, args)
  end
  call('HSET', account.key, unpack(args))
end
if slots_until > 0 then
  local until_now = tonumber(call('HGET', KEYS[5], 'slots_until') or 0)
  call('HSET', KEYS[5], 'slots_until', max(slots_until, until_now))
  for minute, recipients in pairs(slots_in) do
    call('HINCRBY', KEYS[5], string.format('sent:%.0f', minute), recipients)
  end
end

local args = {}
for i = 1, #touched do
  local cell = touched[i]
  last_cell = max(last_cell, cell)
  args[2 * i - 1] = cell
  args[2 * i] = held[cell]
end
if windows then
  -- A credit for those who book next: a quarter of the room there is.
  if frontier >= now_cell and frontier <= horizon_cell then
    local more = min(floor(windows_hold(windows, frontier, 1) / 4), 4096)
    local from, to = now_cell, huge
    for w = 1, #windows do
      local window = windows[w]
      local block = floor(frontier / window.seconds)
      if block < window[1] or block > window[1] + ceil(900 / window.seconds) + 1 then
        more = 0 -- a clock set back, or no horizon
      end
      from, to = max(from, block * window.seconds), min(to, (block + 1) * window.seconds)
    end
    if more >= 16 then
      credit, credit_from, credit_to = more, from, to
      credit_kind = (bulk_lane and 1 or 0) + (hour_cap > 0 and 2 or 0) + (day_cap > 0 and 4 or 0)
      count_in_windows(windows, frontier, more)
    end
  end
  save_windows(windows, args)
end
if bulk_lane then
  state = pack_numbers('>ddddddddddddddddddddddddd', now, first_cell, last_cell, other_frontier, other_vtime, other_weight, other_end,
    other_checked, other_total, other_passed, frontier, vtime, weight, next_end, checked, total, passed, restarts,
          other_full, full, factor, credit,
    credit_kind, credit_from, credit_to)
else
  state = pack_numbers('>ddddddddddddddddddddddddd', now, first_cell, last_cell, frontier, vtime, weight, next_end, checked, total, passed,
    other_frontier, other_vtime, other_weight, other_end, other_checked, other_total, other_passed, restarts, full, other_full,
    factor, credit,
    credit_kind, credit_from, credit_to)
end
for i = 4001, #args, 4000 do
  call('HSET', KEYS[2], unpack(args, i, min(i + 3999, #args)))
end
call('HSET', KEYS[2], 'state', state, unpack(args, 1, min(4000, #args)))
if suppressed then
  for i = 1, #suppressed do
    reply[size + i] = suppressed[i]
  end
end
return reply
