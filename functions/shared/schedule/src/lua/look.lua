-- Says what there is: for whoever keeps the budget, and for people.
--
-- Guarantee: atomic; nothing changes, but that counts older than a day are dropped. The work grows with the horizon and
-- with the minutes of a day, not with the backlog.
--
-- KEYS[1]  budget     hash  as in seed.lua
-- KEYS[2]  schedule   hash  as in book.lua
-- KEYS[3]  guard      hash  as in claim.lua
-- KEYS[4]  paused     hash  as in pause.lua
-- KEYS[5]  throttled  hash  as in slow.lua
-- KEYS[6]  account    hash  as in note.lua
--
-- Returns { now (ms), { minute, recipients sent in it, … } (granted and not given back, slots only included; those of the last 24 hours
-- and two minutes), recipients booked ahead by priority, by bulk, first second (s) with nothing booked in it or after, recipients refused as too many in the last
-- 10 seconds, { budget: field, value, … without what is packed }, { paused: tenant, value, … }, { account: field, value, … },
-- { minute, recipients booked in it after the present second by priority, by bulk, … } }

local floor, max, call = math.floor, math.max, redis.call
local ALL, BULK, DAY = 17179869184, 131072, 1442 -- as in book.lua and claim.lua; the last in minutes

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local minute, second = floor(now / 60000), floor(now / 1000)

local sent, old = {}, {}
local guard = call('HKEYS', KEYS[3])
local counted = {}
for i = 1, #guard do
  local of = tonumber(string.match(guard[i], '^sent:(%d+)$'))
  if of and of < minute - DAY then
    old[#old + 1] = guard[i]
  elseif of and of <= minute then
    counted[#counted + 1] = guard[i]
  end
end
for i = 1, #old, 4000 do
  call('HDEL', KEYS[3], unpack(old, i, math.min(i + 3999, #old)))
end
if #counted > 0 then
  local counts = call('HMGET', KEYS[3], unpack(counted))
  for i = 1, #counts do
    sent[2 * i - 1], sent[2 * i] = tonumber(string.sub(counted[i], 6)), tonumber(counts[i])
  end
end

local priority, bulk, upto = 0, 0, second
local minutes, ahead = {}, {}
local cells = call('HGETALL', KEYS[2])
for i = 1, #cells, 2 do
  local cell, held = tonumber(cells[i]), tonumber(cells[i + 1])
  if cell and cell >= second and held > 0 then
    local rest = held % ALL
    local of_bulk = (rest - rest % BULK) / BULK
    bulk = bulk + of_bulk
    local of_priority = (held - rest) / ALL - of_bulk
    priority = priority + of_priority
    if cell > second then -- the present one holds missed turns, too
      local of = minutes[floor(cell / 60)] or { 0, 0 }
      minutes[floor(cell / 60)] = { of[1] + of_priority, of[2] + of_bulk }
    end
    upto = max(upto, cell + 1)
  end
end

local refused = 0
local tenths = call('HGETALL', KEYS[5])
for i = 1, #tenths, 2 do
  if tonumber(tenths[i]) > floor(now / 100) - 100 then
    refused = refused + tonumber(tenths[i + 1])
  end
end

local budget, words = call('HGETALL', KEYS[1]), {}
for i = 1, #budget, 2 do
  local field = budget[i]
  if field ~= 'book' and field ~= 'claim' and field ~= 'epoch' and string.sub(field, 1, 7) ~= 'tenant:' then
    words[#words + 1] = field
    words[#words + 1] = budget[i + 1]
  end
end
for of, booked in pairs(minutes) do
  ahead[#ahead + 1] = of
  ahead[#ahead + 1] = booked[1]
  ahead[#ahead + 1] = booked[2]
end
return { now, sent, priority, bulk, upto, refused, words, call('HGETALL', KEYS[4]), call('HGETALL', KEYS[6]), ahead }
