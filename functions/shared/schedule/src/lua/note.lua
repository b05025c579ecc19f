-- Notes what is known of the account, for whoever keeps the budget next.
--
-- Guarantee: atomic; fields that aren't named stay.
--
-- KEYS[1]  account  hash  field -> value; only control reads and writes it
-- ARGV     field, value, …; an empty value removes the field
--
-- Returns nothing of meaning.

for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return 1
