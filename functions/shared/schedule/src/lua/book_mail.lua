-- Books as book.lua does, and notes of each mail what became of it, so that it can be found; what was cancelled is booked nothing.
--
-- Guarantee: atomic; what isn't cancelled is booked as book.lua would book it alone. The crate puts book.lua before this, as the
-- function `book`. Each mail costs one command more, and each call one.
--
-- KEYS[1 … n]      as in book.lua
-- KEYS[n + i]      trace of the i-th mail that has a send id  string  as in trace.lua
-- ARGV[1 … ]       as in book.lua
-- ARGV[#ARGV - 1]  n
-- ARGV[#ARGV]      a 1 for each message of the runs that has a send id, a 0 for each other, in order
--
-- Returns what book.lua does, of the messages that aren't cancelled (a run with none left is missing), then which messages are
-- cancelled, each by how many are before it, and their number. With none left: now (ms), 0, 0, and that.
-- Errors: as book.lua.

local floor, min, max, call = math.floor, math.min, math.max, redis.call
local REMEMBERED, KEPT = 90000000, 7 -- ms: a day and an hour; as in trace.lua

local keys, args = tonumber(ARGV[#ARGV - 1]), #ARGV - 2
local which = ARGV[#ARGV]
local last = args - (args - 1) % 4
local traces = {}
for from = keys + 1, #KEYS, 4000 do
  local part = call('MGET', unpack(KEYS, from, min(from + 3999, #KEYS)))
  for i = 1, #part do
    traces[#traces + 1] = part[i] or ''
  end
end

local asked_keys, asked, runs, cancelled = { unpack(KEYS, 1, 5) }, { ARGV[1] }, {}, {}
local message, traced = 0, 0
for i = 2, last, 4 do
  local left = {} -- of its messages those that aren't cancelled: which trace each has, or 0
  for _ = 1, tonumber(ARGV[i + 2]) do
    message = message + 1
    local trace = 0
    if string.byte(which, message) == 49 then
      traced = traced + 1
      trace = traced
    end
    if trace > 0 and string.find(traces[trace], '[;|]cancelled,%d+$') then
      cancelled[#cancelled + 1] = message - 1
    else
      left[#left + 1] = trace
    end
  end
  if #left > 0 then
    runs[#runs + 1] = { cost = tonumber(ARGV[i + 1]), left = left }
    asked_keys[#asked_keys + 1] = KEYS[5 + (i + 2) / 4]
    asked[#asked + 1] = ARGV[i]
    asked[#asked + 1] = ARGV[i + 1]
    asked[#asked + 1] = #left
    asked[#asked + 1] = ARGV[i + 3]
  end
end
for i = last + 1, args do
  asked[#asked + 1] = ARGV[i]
end
if keys > 5 + (last - 1) / 4 then
  asked_keys[#asked_keys + 1] = KEYS[keys] -- of the addresses
end

local reply
if #runs > 0 then
  reply = book(asked_keys, asked)
  if reply.err then
    return reply
  end
else
  local time = call('TIME')
  reply = { time[1] * 1000 + floor(time[2] / 1000), 0, 0 }
  if args > last + 1 then
    reply[4] = 0 -- no address is looked up
  end
end

local now = string.format('%.0f', reply[1])
local function note(trace, cost, step)
  local steps = ''
  local before = string.match(traces[trace], '^1|[^|]*|[^|]*|(.+)$')
  if before then
    local all = {}
    for one in string.gmatch(before, '[^;]+') do
      all[#all + 1] = one
    end
    while #all > KEPT do
      table.remove(all, 2)
    end
    steps = table.concat(all, ';') .. ';'
  end
  call('SET', KEYS[keys + trace], '1|' .. ARGV[1] .. '|' .. cost .. '|' .. steps .. step, 'PX', REMEMBERED)
end
local function wait(trace, cost, delay)
  if trace > 0 then
    note(trace, cost, 'waiting,' .. now .. string.format(',%.0f', reply[1] + delay))
  end
end

if reply[2] == -1 then
  for _, run in ipairs(runs) do
    for _, trace in ipairs(run.left) do
      wait(trace, run.cost, reply[3])
    end
  end
else
  local largest, at = reply[2], 4
  for _, run in ipairs(runs) do
    if reply[at] < 0 then
      at = at + 1 -- nothing is booked, and whoever asked knows what becomes of it
    else
      local booked, takes, waits = reply[at], reply[at + 1], reply[at + 2]
      local take = at + 3
      local waiting = take + 4 * takes
      local used = 0 -- of the take
      for k = 1, booked do
        local cost, dealt, slot, cells = run.cost, 0, reply[1], {}
        local goes_with = min(cost, largest)
        while dealt < cost do
          local cell, first, count, capacity = reply[take], reply[take + 1] + used, reply[take + 2] - used, reply[take + 3]
          local part = min(count, cost - dealt)
          if dealt < goes_with then
            local turn = first + min(part, goes_with - dealt) - 1
            slot = max(cell * 1000 + floor(turn * 1000 / max(capacity, 1)), reply[1])
          end
          cells[#cells + 1] = string.format('%.0f.%.0f', cell, part)
          dealt, used = dealt + part, used + part
          if used == reply[take + 2] then
            take, used = take + 4, 0
          end
        end
        if run.left[k] > 0 then
          note(run.left[k], cost, 'booked,' .. now .. string.format(',%.0f,', slot) .. table.concat(cells, '+'))
        end
      end
      for k = 1, waits do
        -- One that leaves its line has neither.
        wait(run.left[booked + k] or 0, run.cost, reply[waiting + 3 * (k - 1)])
      end
      at = waiting + 3 * waits
    end
  end
end

local size = #reply
for i = 1, #cancelled do
  reply[size + i] = cancelled[i]
end
reply[size + #cancelled + 1] = #cancelled
return reply
