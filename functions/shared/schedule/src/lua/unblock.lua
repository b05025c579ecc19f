-- Lets mail be sent and booked again, if it was for one of some reasons that it wasn't.
--
-- Guarantee: atomic; a block for another reason stays.
--
-- KEYS[1]  budget  hash  as in block.lua
-- ARGV     reasons
--
-- Returns 1 if a block was ended, else 0.

local reason = string.match(redis.call('HGET', KEYS[1], 'blocked') or '', '^%d+|%d+|(.*)$')
for i = 1, #ARGV do
  if ARGV[i] == reason then
    return redis.call('HDEL', KEYS[1], 'blocked')
  end
end
return 0
