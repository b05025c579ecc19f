-- Says what there is of tenants, by lane: for people.
--
-- Guarantee: atomic; nothing changes, but that what was noted as uncertain longer ago than any message lives is dropped. The work grows with
-- the horizon, the quarters of a day, and the mail that is uncertain, not with the backlog.
--
-- KEYS[1]       uncertain      hash  as in commit.lua
-- then two for each tenant:
-- KEYS[2i]      tenant:<name>  hash  as in book.lua
-- KEYS[2i + 1]  sent:<name>    hash  as in commit.lua
-- ARGV[1]       life of a mark, ms: longer than any message lives
-- ARGV[1 + i]   name of tenant i
--
-- Returns for each tenant { of priority: recipients booked ahead, recipients in line, recipients sent to in the last four quarters of an hour, in the
-- last 96, mails that are uncertain; the same of bulk }

local floor, max, call = math.floor, math.max, redis.call
local GOING, HOUR, DAY = 1048576, 4, 96 -- the first is 2^20, as in book.lua; then quarters of an hour
local LANES = { 'priority', 'bulk' }

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local cell, quarter = floor(now / 1000), floor(now / 900000)

local uncertain, old = {}, {}
local noted = call('HGETALL', KEYS[1])
for i = 1, #noted, 2 do
  local tenant = string.match(noted[i], '^([^:]*):')
  local since, lane = string.match(noted[i + 1], '^(%d+)|(%a+)$')
  if not tenant or not since or tonumber(since) < now - ARGV[1] then
    old[#old + 1] = noted[i]
  else
    local of = lane .. ':' .. tenant
    uncertain[of] = (uncertain[of] or 0) + 1
  end
end
for i = 1, #old, 4000 do
  call('HDEL', KEYS[1], unpack(old, i, math.min(i + 3999, #old)))
end

local answer = {}
for i = 1, #ARGV - 1 do
  local booked, waiting, hour, day = {}, {}, {}, {}
  local fields = call('HGETALL', KEYS[2 * i])
  for k = 1, #fields, 2 do
    local lane, of = string.match(fields[k], '^(%a+)(%d*)$')
    if of and of ~= '' then
      if tonumber(of) >= cell then
        booked[lane] = (booked[lane] or 0) + floor(tonumber(fields[k + 1]) / GOING)
      end
    elseif lane == 'priority' or lane == 'bulk' then
      local queued, served, _, weight = struct.unpack('>dddd', fields[k + 1])
      waiting[lane] = weight > 0 and max(queued - served, 0) or 0
    end
  end
  local sent = call('HGETALL', KEYS[2 * i + 1])
  for k = 1, #sent, 2 do
    local lane, of = string.match(sent[k], '^(%a+)(%d+)$')
    of = tonumber(of)
    if of and of > quarter - DAY then
      day[lane] = (day[lane] or 0) + tonumber(sent[k + 1])
      if of > quarter - HOUR then
        hour[lane] = (hour[lane] or 0) + tonumber(sent[k + 1])
      end
    end
  end
  local row = {}
  for _, lane in ipairs(LANES) do
    row[#row + 1] = booked[lane] or 0
    row[#row + 1] = waiting[lane] or 0
    row[#row + 1] = hour[lane] or 0
    row[#row + 1] = day[lane] or 0
    row[#row + 1] = uncertain[lane .. ':' .. ARGV[1 + i]] or 0
  end
  answer[i] = row
end
return answer
