-- Writes the budget and its tenants, if they differ from what Redis holds from the same source.
--
-- Guarantee: atomic; a budget that came from elsewhere (the account itself) is never replaced by
-- deploy parameters. A changed budget sends the searches back to now, as there may be room in every cell.
--
-- KEYS[1]  budget    hash  "book" and "claim": what those scripts run on, packed as big-endian doubles;
--                          "tenant:<name>": each known tenant's settings ("" for none yet); "source"; and the
--                          settings in words, for people
-- KEYS[2]  schedule  hash  as in book.lua
-- ARGV[1]  source of the budget, such as "deploy"
-- ARGV[2]  how many numbers for "book", ARGV[3] how many for "claim", ARGV[4] how many pairs of words;
-- then those numbers, those pairs (field, value), and the tenants' names
--
-- Returns 1 if anything was written, else 0.

local call = redis.call
local source = ARGV[1]
local digest = redis.sha1hex(table.concat(ARGV, '\n'))
local held = call('HMGET', KEYS[1], 'source', 'digest')
if held[1] and (held[1] ~= source or held[2] == digest) then
  return 0
end

local at = 5
local function packed(count)
  local bytes = {}
  for i = 1, count do
    bytes[i] = struct.pack('>d', tonumber(ARGV[at + i - 1]))
  end
  at = at + count
  return table.concat(bytes)
end

local fields = { 'source', source, 'digest', digest, 'book', packed(tonumber(ARGV[2])), 'claim', packed(tonumber(ARGV[3])) }
for i = at, at + 2 * ARGV[4] - 1 do
  fields[#fields + 1] = ARGV[i]
end
for i = at + 2 * ARGV[4], #ARGV do
  fields[#fields + 1] = 'tenant:' .. ARGV[i]
  fields[#fields + 1] = ''
end
call('DEL', KEYS[1])
for i = 1, #fields, 2000 do
  call('HSET', KEYS[1], unpack(fields, i, math.min(i + 1999, #fields)))
end

local state = call('HGET', KEYS[2], 'state')
if state then
  -- Of the state's eleven numbers, the fourth and the eighth are the lanes' frontiers.
  local zero = struct.pack('>d', 0)
  call('HSET', KEYS[2], 'state', string.sub(state, 1, 24) .. zero .. string.sub(state, 33, 56) .. zero
    .. string.sub(state, 65))
end
return 1
