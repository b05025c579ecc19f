-- Claims a batch of messages for one worker and draws from the guard when each may go.
--
-- Guarantee: atomic. A message that was sent, or that another worker holds, is never claimed; one that may have been
-- sent is claimed only when it may be sent again. In no second are more than ⌈L⌉ recipients granted, save a single
-- message that costs more alone. What isn't granted isn't claimed either. Held step by step against
-- `sendslot_domain::guard` and `sendslot_domain::adaptive`, which explain the rules.
--
-- KEYS[1]      budget               hash     the numbers, as written by seed.lua; "factor", "slowed" and "refused", as slow.lua explains
--                                            them: cut, measured and raised here; "blocked", as block.lua writes it; "generation" (ms): when Redis was last found empty
-- KEYS[2]      guard                hash     head (last tick the strip covers), clock, closed_until, and
--                                            strip: 512 ticks of 10 ms in a ring, tick t at t mod 512, six
--                                            bytes each: units taken, of these by bulk, recipients going, each
--                                            of two bytes, big-endian
--                                            "slots_until" (ms), until when slots only are booked, as book.lua notes; and
--                                            "sent:<minute>": recipients granted in it or booked as slots only, less
--                                            those that commit.lua was told the provider hasn't taken
-- KEYS[3]      schedule             hash     as in book.lua: the cells say how many recipients others send in a second
-- KEYS[4]      paused               hash     tenants that may not send, as pause.lua writes it
-- KEYS[5]      throttled            hash     tenth of a second -> recipients refused in it, as slow.lua writes it
-- KEYS[5 + i]  claim of message i   string   "1|<state>|<ms>|<fingerprint>|<owner>": "claimed" until the lease's end, "uncertain" since,
--                                            or how it ended and when: "sent", "rejected", "expired"
-- ARGV[1]      owner: who claims
-- ARGV[2]      lane: "priority" or "bulk"
-- ARGV[3]      lease, ms: how long the claim is alive
-- ARGV[4]      longest wait for a grant, ms, at most 3000
-- ARGV[5]      life of a claim whose end was never told, ms: longer than any message lives
-- ARGV[6]      how long an uncertain message waits for its confirmation before it may be sent again, ms; -1: for ever
-- ARGV[7]      "new", or "renew" to draw new grants for messages that the owner has claimed
-- then seven for each message: slot (ms), recipients, fingerprint of its content, tenant, since when (ms) somebody may have
-- claimed it before (-1: it is new; 0: it surely is uncertain), whose claims of it surely sent nothing (with commas between),
-- and "send", "once" (never when uncertain, whatever ARGV[6] says), "resend" (also when uncertain, at once) or "expired" (not to be sent); and last, if the caller has to know, the
-- digest that the budget is thought to have
--
-- Returns { now (ms), answer, … }, each answer one of
--   { "go", grant (ms) }          claimed: send it then
--   { "later", ahead (ms) }       not claimed: the slot is still that far ahead, or, at 0, the guard has no grant in time
--   { "held", left (ms) }         another claim is alive that long
--   { "uncertain", age (ms) }     it may have been sent, so long ago
--   { "ended", how }              it was sent, was rejected or has expired: this is a copy of it
--   { "expired" }                 it was never sent and now never will be
--   { "conflict" }                the send id was used for other content
--   { "paused", left (ms) }       its tenant may not send, for so long; 0: until resumed
--   { "blocked", left (ms) }      nobody may send for so long
-- Errors: NOBUDGET when Redis holds no budget, STALE when it has another digest.

local floor, min, max, call = math.floor, math.min, math.max, redis.call
local TICK, TICKS, RING, MEMORY = 10, 100, 512, 200
local LONGEST_WAIT, SLOTS = 3000, 131072 -- the last is 2^17, as in book.lua
local ONE, FINE, LEAST_FACTOR = 1024, 1000000, 8
local WATCHED, ANSWERED, MEASURED_AFTER, REMEMBERED, SETTLED, ENOUGH = 2000, 300, 1300, 2000, 2000, 40
local PLATEAU, STEP = 30000, 2
local LONGEST_BLOCK, MOST_SLOWED, DAY = 960000, 6000, 1442

local budget = call('HMGET', KEYS[1], 'claim', 'factor', 'slowed', 'blocked', 'generation', 'digest', 'refused')
if not budget[1] then
  return redis.error_reply('NOBUDGET the budget is not set up')
end
if #ARGV % 7 == 1 and budget[6] ~= ARGV[#ARGV] then
  return redis.error_reply('STALE the budget is another')
end
local num, den, share_num, share_den, burst, largest, most = struct.unpack('>ddddddd', budget[1])
local bulk_lane = ARGV[2] == 'bulk'

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)

-- How long nobody may send yet. An end that is further away than any was set by a clock since set back.
local blocked = tonumber(string.match(budget[4] or '', '^%d+') or 0) - now
if blocked > LONGEST_BLOCK then
  blocked = 0
end

-- What was shown in these tenths of a second, the last not included, of which the guard was asked last at `looked`: all that
-- went and all that was refused, and from the first refusal to the last: recipients offered behind the first, and accepted a second.
local function shown(from, to, guard, looked)
  local seen = { went = 0, refused = 0, offered = 0, rate = 0 }
  from = max(from, math.ceil((floor(looked / TICK) - MEMORY) / 10))
  if not guard[1] or from >= to then
    return seen
  end
  local strip, head = guard[1], tonumber(guard[2])
  local fields = {}
  for tenth = from, to - 1 do
    fields[#fields + 1] = tenth
  end
  local refusals = call('HMGET', KEYS[5], unpack(fields))
  local first, offered, accepted = nil, 0, 0
  for k = 1, #fields do
    local tenth, went, refused = fields[k], 0, tonumber(refusals[k] or 0)
    for t = tenth * 10, min(tenth * 10 + 9, head) do
      local high, low = string.byte(strip, (t % RING) * 6 + 5, (t % RING) * 6 + 6)
      went = went + high * 256 + low
    end
    seen.went, seen.refused = seen.went + went, seen.refused + refused
    if first then
      offered, accepted = offered + went, accepted + max(went - refused, 0)
      if refused > 0 then
        local rate = accepted * 10 / (tenth - first)
        if seen.offered < ENOUGH or rate > seen.rate then
          seen.rate = rate
        end
        seen.offered = offered
      end
    elseif refused > 0 then
      first = tenth
    end
  end
  return seen
end

-- The factor by what was accepted, of which so much is used.
local function by(seen, share, uncut)
  local slower = floor(seen.rate * share * ONE / (num / den * TICKS))
  if seen.refused * 20 < seen.went then
    slower = max(slower, floor(uncut * 0.9))
  end
  return max(min(slower, uncut), LEAST_FACTOR)
end

-- The rate is cut once enough is known of what was refused, measured once, stays for a while, and then climbs back.
local factor = tonumber(budget[2] or ONE)
local full_num, full_den = num, den
local first_refused, told = string.match(budget[7] or '', '^(%d+)|(%d+)$')
if factor < ONE or first_refused then
  local cut, raised, uncut, settled = string.match(budget[3] or '', '^(%d+)|(%d+)|(%d+)|(%d+)$')
  cut, raised, uncut, settled = tonumber(cut or 0), tonumber(raised or 0), tonumber(uncut or 0), tonumber(settled or 0)
  local was, was_cut, was_uncut = factor, cut, uncut
  local guard, looked = nil, 0
  if first_refused or uncut > 0 and now >= cut + MEASURED_AFTER then
    guard = call('HMGET', KEYS[2], 'strip', 'head', 'clock')
    looked = tonumber(guard[3] or 0)
  end
  if first_refused then
    first_refused, told = tonumber(first_refused), tonumber(told)
    if now < told then
      call('HDEL', KEYS[1], 'refused') -- the clock was set back
    else
      local seen = { went = 0, refused = 0, offered = 0, rate = 0 }
      if looked <= first_refused + 2 * REMEMBERED and looked <= now then
        seen = shown(floor(first_refused / 100), floor(max(now - ANSWERED, 0) / 100), guard, looked)
      end
      local enough = seen.offered >= ENOUGH
      if enough or now >= told + WATCHED then
        cut, raised, uncut, settled = now, now, factor, now + SETTLED
        factor = max(by(seen, 0.85, factor), enough and 0 or floor(factor / 2), LEAST_FACTOR)
        call('HDEL', KEYS[1], 'refused')
      end
    end
  end
  if factor < ONE then
    if now < cut then
      cut, raised, settled = now, now, now + SETTLED -- the clock was set back
    end
    if uncut > 0 and now >= cut + MEASURED_AFTER then
      if looked <= cut + REMEMBERED and looked <= now then
        local seen = shown(floor(cut / 100) - 20, floor(cut / 100) + 10, guard, looked)
        if seen.offered >= ENOUGH then
          factor = by(seen, 0.95, uncut)
        end
      end
      uncut, settled = 0, now + SETTLED
    end
    local steps = floor((now - max(raised, cut + PLATEAU)) / 1000)
    if steps > 0 then
      factor = min(ONE, factor + steps * STEP)
      raised = max(raised, cut + PLATEAU) + steps * 1000
    end
  end
  if factor >= ONE then
    if was < ONE then
      call('HDEL', KEYS[1], 'factor', 'slowed')
    end
  elseif factor ~= was or cut ~= was_cut or uncut ~= was_uncut then
    call('HSET', KEYS[1], 'factor', factor, 'slowed', string.format('%.0f|%.0f|%.0f|%.0f', cut, raised, uncut, settled))
  end
  if factor < ONE then
    num, den = max(1, floor(num / den * factor / ONE * FINE)), FINE
    largest, most = max(1, floor(largest * factor / ONE)), max(1, floor(most * factor / ONE))
  end
end

local function mul_div(x, n, d)
  local rest = x % d
  return (x - rest) / d * n + floor(rest * n / d)
end

local function ticks_for(recipients)
  return mul_div(recipients, den, num)
end

-- How long nobody goes after so many recipients over what a second holds. A rate that was cut climbs again: of that at most so much.
local function debt(recipients)
  local ticks = ticks_for(recipients)
  return min(ticks, max(mul_div(recipients, full_den, full_num), MOST_SLOWED))
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

  local silence = alone and max(TICKS, debt(cost - largest) + 1) or TICKS
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
    closed_until = max(closed_until, goes + debt(cost) + 1)
  end
  changed = true
  return goes * TICK
end

local owner, lease, life = ARGV[1], tonumber(ARGV[3]), ARGV[5]
local longest = min(tonumber(ARGV[4]), LONGEST_WAIT)
local resend_after = tonumber(ARGV[6])
local renew = ARGV[7] == 'renew'
local generation = tonumber(budget[5] or 0)
local reply = { now }
local count = #KEYS - 5
local held = count > 0 and call('MGET', unpack(KEYS, 6)) or {}
local paused = {}
if call('EXISTS', KEYS[4]) == 1 then
  for i = 1, count do
    paused[i] = call('HGET', KEYS[4], ARGV[7 * i + 4])
  end
end

-- How long a tenant may not send yet, 0 for ever; nothing if it may.
local function pause_left(value)
  local till = value and tonumber(string.match(value, '^1|(%d+)|') or 0)
  if till == 0 then
    return 0
  end
  return till and till > now and till - now < LONGEST_BLOCK and till - now or nil
end

local granted = 0
local claimed = {}
local function write(key, state, at, fingerprint)
  local value = '1|' .. state .. '|' .. string.format('%.0f', at) .. '|' .. fingerprint .. '|' .. owner
  call('SET', key, value, 'PX', life)
  claimed[key] = value
end

for i = 1, count do
  local key, from = KEYS[5 + i], 7 * i
  local slot, cost, fingerprint = tonumber(ARGV[from + 1]), tonumber(ARGV[from + 2]), ARGV[from + 3]
  local suspect, void, kind = tonumber(ARGV[from + 5]), ARGV[from + 6], ARGV[from + 7]
  local state, at, print, by
  local value = claimed[key] or held[i]
  if value then
    state, at, print, by = string.match(value, '^1|(%a+)|(%d+)|([^|]*)|(.*)$')
    at = tonumber(at)
  end
  local age -- of an uncertain message
  local free, again = not value, false
  if state == 'claimed' and not claimed[key] and (renew and by == owner or void ~= '' and string.find(',' .. void .. ',', ',' .. by .. ',', 1, true)) then
    free, again = true, true -- what was granted to it before has sent nothing, and is counted already
  elseif state == 'claimed' and at <= now then
    age = now - at
  elseif state == 'uncertain' then
    age = max(now - at, 0)
  elseif free and suspect >= 0 and suspect <= generation then
    -- Who claimed it before, if somebody did, was forgotten with the rest, and may be sending it until his lease would end.
    local since = suspect == 0 and now or generation + lease
    free, age = false, max(now - since, 0)
    write(key, 'uncertain', since, fingerprint)
  end
  if age and (kind == 'resend' or kind == 'send' and resend_after >= 0 and age >= resend_after) then
    free = true
  end

  if value and not state then
    reply[i + 1] = { 'uncertain', 0 } -- written by a version we can't read
  elseif state and print ~= '' and print ~= fingerprint then
    reply[i + 1] = { 'conflict' }
  elseif state == 'claimed' and at > now and not free then
    reply[i + 1] = { 'held', at - now }
  elseif age and not free then
    reply[i + 1] = { 'uncertain', age }
  elseif not free then
    reply[i + 1] = { 'ended', state }
  elseif kind == 'expired' then
    write(key, 'expired', now, fingerprint)
    reply[i + 1] = { 'expired' }
  elseif pause_left(paused[i]) then
    reply[i + 1] = { 'paused', pause_left(paused[i]) }
  elseif blocked > 0 then
    reply[i + 1] = { 'blocked', blocked }
  elseif slot > now + longest then
    reply[i + 1] = { 'later', slot - now }
  else
    local goes = grant(slot, cost, longest)
    if goes then
      granted = again and granted or granted + cost
      write(key, 'claimed', now + lease, fingerprint)
      reply[i + 1] = { 'go', goes }
    else
      reply[i + 1] = { 'later', 0 }
    end
  end
end
if granted > 0 then
  local minute = floor(now / 60000)
  if call('HINCRBY', KEYS[2], string.format('sent:%.0f', minute), granted) == granted then
    -- The minute is new: what is older than a day is dropped. look.lua drops what a long silence leaves.
    local old = {}
    for i = 1, 64 do
      old[i] = string.format('sent:%.0f', minute - DAY - i)
    end
    call('HDEL', KEYS[2], unpack(old))
  end
end
if changed then
  write_strip()
elseif clock then
  call('HSET', KEYS[2], 'clock', clock)
end
return reply
