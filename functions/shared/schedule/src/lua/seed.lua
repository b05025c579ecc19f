-- Writes the budget and its tenants, if they differ from what Redis holds.
--
-- Guarantee: atomic; a budget that came from elsewhere (the account itself) is never replaced by
-- deploy parameters. A rate that has moved by a tenth and more since searches last began anew, at most once a minute, and any
-- other change at once, starts an epoch: searches go back to now, as there may be room in every cell.
--
-- KEYS[1]  budget    hash  "book" and "claim": what those scripts run on, packed as big-endian doubles;
--                          "tenant:<name>": each known tenant's settings, packed likewise; "factor", "slowed", "refused" and "blocked", as
--                          slow.lua and block.lua write them, are kept, the factor in proportion when the rate falls; "generation" (ms): when Redis was last found empty, kept likewise;
--                          "epoch": the rate (recipients/s) and the time (ms) at which searches last began anew, packed;
--                          "source"; "digest": the one given; and the settings in words, for people
-- KEYS[2]  schedule  hash  as in book.lua
-- ARGV[1]  source of the budget: "deploy", or "account"
-- ARGV[2]  a digest of all that follows
-- ARGV[3]  how many numbers for "book", ARGV[4] how many for "claim", ARGV[5] how many pairs of words;
-- then those numbers, those pairs (field, value), and for each tenant: name, weight, cap of an hour, cap of a day (recipients;
-- 0 for none)
--
-- Returns 1 if anything was written, else 0.

local call, pack_numbers, unpack_numbers = redis.call, struct.pack, struct.unpack
local EPOCH, MOVED, ONE = 60000, 10, 1024

local source, digest = ARGV[1], ARGV[2]
local held = call('HMGET', KEYS[1], 'source', 'digest', 'book', 'epoch', 'claim')
if source == 'deploy' and held[1] and held[1] ~= source then
  return 0
end
local changed = held[2] ~= digest

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = 6
local function packed(count)
  local bytes = {}
  for i = 1, count do
    bytes[i] = pack_numbers('>d', tonumber(ARGV[at + i - 1]))
  end
  at = at + count
  return table.concat(bytes)
end
local book, claim = packed(tonumber(ARGV[3])), packed(tonumber(ARGV[4]))

-- Whether searches begin anew.
local rate = tonumber(ARGV[6]) / tonumber(ARGV[7])
local epoch, put_off = true, false
if held[3] and held[4] then
  local epoch_rate, since = unpack_numbers('>dd', held[4])
  local moved = math.abs(rate - epoch_rate) * MOVED >= epoch_rate
  epoch = moved and (now >= since + EPOCH or now < since)
  put_off = moved and not epoch
  -- Reserve, horizon, slice and caps: the fifth, the seventh to the ninth, and the tenth and the twelfth number.
  for _, n in ipairs({ 5, 7, 8, 9, 10, 12 }) do
    epoch = epoch or string.sub(held[3], 8 * n - 7, 8 * n) ~= string.sub(book, 8 * n - 7, 8 * n)
  end
end
if not changed and not epoch then
  return 0
end

if changed then
  -- An epoch that is put off is begun by whoever seeds next: nobody finds the digest that it expects.
  local fields = { 'source', source, 'digest', put_off and '' or digest, 'book', book, 'claim', claim }
  local tenants = at + 2 * ARGV[5]
  for i = at, tenants - 1 do
    fields[#fields + 1] = ARGV[i]
  end
  for i = tenants, #ARGV, 4 do
    fields[#fields + 1] = 'tenant:' .. ARGV[i]
    fields[#fields + 1] = pack_numbers('>ddd', tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]))
  end
  local kept = { 'factor', 'slowed', 'refused', 'blocked', 'epoch', 'generation' }
  local values = call('HMGET', KEYS[1], unpack(kept))
  if values[1] and held[5] then
    -- The factor is one of the old rate: what that came to may go on, and no less. A higher rate it is a part of as before.
    local old_num, old_den = unpack_numbers('>dd', held[5])
    local new_num, new_den = unpack_numbers('>dd', claim)
    local function scaled(factor)
      return math.max(factor, math.min(ONE, math.floor(factor * (old_num / old_den) / (new_num / new_den))))
    end
    local factor = scaled(tonumber(values[1]))
    local cut, raised, uncut, settled = string.match(values[2] or '', '^(%d+)|(%d+)|(%d+)|(%d+)$')
    if factor >= ONE then
      values[1], values[2] = false, false
    else
      values[1] = string.format('%.0f', factor)
      if cut then
        values[2] = string.format('%s|%s|%.0f|%s', cut, raised, scaled(tonumber(uncut)), settled)
      end
    end
  end
  for i = 1, #kept do
    if values[i] then
      fields[#fields + 1] = kept[i]
      fields[#fields + 1] = values[i]
    elseif kept[i] == 'generation' then
      -- A budget without one was written by a version that knew none: nothing has been forgotten since.
      fields[#fields + 1] = 'generation'
      fields[#fields + 1] = held[1] and 0 or string.format('%.0f', now)
    end
  end
  call('DEL', KEYS[1])
  for i = 1, #fields, 2000 do
    call('HSET', KEYS[1], unpack(fields, i, math.min(i + 1999, #fields)))
  end
end

if epoch then
  call('HSET', KEYS[1], 'epoch', pack_numbers('>dd', rate, now))
end
do
  local state = call('HGET', KEYS[2], 'state')
  if state then
    -- Of the state's numbers, the fourth and the eleventh are the lanes' frontiers, the 19th and 20th from where they have any room.
    local numbers = { unpack_numbers('>ddddddddddddddddddddddddd', state) }
    if epoch then
      numbers[4], numbers[11] = 0, 0
    end
    numbers[19], numbers[20] = 0, 0
    numbers[25] = numbers[24] -- nothing may be booked on credit any more
    call('HSET', KEYS[2], 'state', pack_numbers('>ddddddddddddddddddddddddd', unpack(numbers, 1, 25)))
  end
end
return 1
