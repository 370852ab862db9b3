-- Runs commands unless a higher fence was shown.
--
-- KEYS[1]    the fence KEYS[2..]  the keys of the commands, in their order ARGV[1]    the caller's fence ARGV[2]    how
-- long the fence is kept, in ms ARGV[3..]  for each command: the number of its words, and these
--
-- Reply: the reply of each command; nil: a higher fence is there, and nothing was written

local highest = redis.call('GET', KEYS[1])
if highest then
  local number = tonumber(highest)
  if not number then
    return redis.error_reply('ERR the key of the fence holds something else')
  end
  if number > tonumber(ARGV[1]) then
    return false
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local replies, at = {}, 3
while ARGV[at] do
  local last = at + tonumber(ARGV[at])
  replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, last))
  at = last + 1
end
return replies
