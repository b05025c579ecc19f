-- Notes what happened to mails, so that one can be found.
--
-- Guarantee: atomic. Nothing but find.lua and cancel.lua goes by what is noted: it may be lost with Redis, or be late, and nothing comes of it.
--
-- KEYS[1]      uncertain             hash    as in commit.lua: what is parked or dead-lettered isn't counted there any more
-- KEYS[1 + i]  trace of mail i       string  "1|<lane>|<recipients>|<step>;<step>;…", each step "<what>,<ms>" and, behind another comma: of "booked"
--                                            its slot (ms) and its cells, "<cell>.<recipients>+…"; of "waiting" and "scheduled" until when (ms); of "parked" when it first
--                                            reached us (ms) and why; of "dead" why. Of many steps the first and the last seven are kept
-- ARGV[1]      how long that is remembered, ms
-- then five for each mail: "<tenant>:<send id>", lane, recipients, what, and what stands behind the other comma, or ""

local floor, call = math.floor, redis.call
local KEPT = 7
local time = call('TIME')
local now = string.format('%.0f', time[1] * 1000 + floor(time[2] / 1000))
for i = 1, #KEYS - 1 do
  local name, lane, cost, what, rest = unpack(ARGV, 5 * i - 3, 5 * i + 1)
  local steps = {}
  for step in string.gmatch(string.match(call('MGET', KEYS[1 + i])[1] or '', '^1|[^|]*|[^|]*|(.*)$') or '', '[^;]+') do
    steps[#steps + 1] = step
  end
  while #steps > KEPT do
    table.remove(steps, 2)
  end
  steps[#steps + 1] = what .. ',' .. now .. (rest ~= '' and ',' .. rest or '')
  call('SET', KEYS[1 + i], '1|' .. lane .. '|' .. cost .. '|' .. table.concat(steps, ';'), 'PX', ARGV[1])
  if what == 'parked' or what == 'dead' then
    call('HDEL', KEYS[1], name)
  end
end
return redis.status_reply('OK')
