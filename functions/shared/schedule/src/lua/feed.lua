-- Takes in what the provider told of mails: marks what it has sent, counts per tenant, and notes whom nobody may be sent to.
--
-- Guarantee: atomic; an event is counted once within its memory, whatever is handed over again. "sent" is left even when the claim is
-- gone or another's, as by commit.lua. What is counted belongs to the minute in which its mail was sent, so that a mail and its bounce
-- are in the same window; mail from before the tenant was last resumed, or older than a day, isn't counted. The work grows with the
-- batch, and with the minutes of an hour and the quarters of a day, not with the tenants; so does what is kept of a tenant.
--
-- KEYS[1]       suppressed         hash    digest of an address, 16 bytes -> "b" (bounced) or "c" (complained), and when that was last
--                                          heard (s); heard of longer ago than three days, it stands for nothing
-- then three for each event:
-- KEYS[3i - 1]  event:<digest>     string  that the event was taken in
-- KEYS[3i]      counts:<tenant>    hash    "<what><minute>" and, in upper case, "<WHAT><quarter of an hour>" -> recipients: s sent, b bounced,
--                                          c complained; "since": from when on (ms) mail is counted
-- KEYS[3i + 1]  claim of the mail  string  as in claim.lua
-- and last:
-- KEYS[#KEYS]   uncertain          hash    as in commit.lua
-- ARGV[1]       life of a mark, ms: longer than any message lives
-- ARGV[2]       memory of an event, ms
-- then five for each event: what it tells ("s", "b", "c", or "" for what isn't counted), recipients, when its mail was sent (ms),
-- the addresses that nobody may be sent to, 16 bytes each, and "b" or "c" for them
--
-- Returns for each event { 1 if it is new, else 0, and of its tenant: sent, bounced and complained of the last hour, and of the last 24 };
-- the six are left out where it tells neither of a bounce nor of a complaint.

local floor, call = math.floor, redis.call
local HOUR, DAY, LIFE = 60, 96, 93600000 -- minutes, quarters of an hour; ms: a day and two hours

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local minute, quarter = floor(now / 60000), floor(now / 900000)

local sums = {} -- by key, so that a tenant is added up once
local function sum_of(key)
  if sums[key] then
    return sums[key]
  end
  local sum, old = { s = 0, b = 0, c = 0, S = 0, B = 0, C = 0 }, {}
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    local what, at = string.match(fields[i], '^(%a)(%d+)$')
    if what then
      at = tonumber(at)
      if what == string.lower(what) and at > minute - HOUR or what == string.upper(what) and at > quarter - DAY then
        sum[what] = sum[what] + tonumber(fields[i + 1])
      else
        old[#old + 1] = fields[i]
      end
    end
  end
  for i = 1, #old, 4000 do
    call('HDEL', key, unpack(old, i, math.min(i + 3999, #old)))
  end
  sums[key] = sum
  return sum
end

local answer = {}
for i = 1, (#KEYS - 2) / 3 do
  local seen, counts, claim = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  local what, recipients, sent_at, addresses, why = unpack(ARGV, 5 * i - 2, 5 * i + 2)
  local is_new = call('SET', seen, '1', 'NX', 'PX', ARGV[2]) and true or false
  if is_new then
    if what == 's' then
      local held = call('MGET', claim)[1]
      local state, fingerprint = string.match(held or '', '^1|(%a+)|%d+|([^|]*)|')
      call('SET', claim, string.format('1|sent|%.0f|%s|event', now, fingerprint or ''), 'PX', ARGV[1])
      if state == 'uncertain' or state == 'claimed' then
        call('HDEL', KEYS[#KEYS], string.match(claim, ':claim:(.+)$'))
      end
    end
    if what ~= '' and tonumber(recipients) > 0 then
      local at = math.min(tonumber(sent_at), now)
      local since = tonumber(call('HGET', counts, 'since') or 0)
      if at >= since and floor(at / 900000) > quarter - DAY then
        local of_quarter = call('HINCRBY', counts, string.upper(what) .. string.format('%.0f', floor(at / 900000)), recipients)
        if floor(at / 60000) > minute - HOUR then
          call('HINCRBY', counts, what .. string.format('%.0f', floor(at / 60000)), recipients)
        end
        call('PEXPIRE', counts, LIFE)
        if of_quarter == tonumber(recipients) then
          sum_of(counts) -- a quarter has begun: what is old is dropped, also where nothing ever bounces
        end
        sums[counts] = nil
      end
    end
    for from = 1, #addresses, 16 do
      call('HSET', KEYS[1], string.sub(addresses, from, from + 15), why .. time[1])
    end
  end
  answer[i] = { is_new and 1 or 0 }
end
for i = 1, #answer do
  local what = ARGV[5 * i - 2]
  if what == 'b' or what == 'c' then
    local sum = sum_of(KEYS[3 * i])
    answer[i] = { answer[i][1], sum.s, sum.b, sum.c, sum.S, sum.B, sum.C }
  end
end
return answer
