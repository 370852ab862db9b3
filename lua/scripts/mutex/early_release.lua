-- The queue is empty, and the number is there.
if ARGV[5] == '' and call('EXISTS', queue, heartbeats) == 0 and call('EXISTS', number) == 1 then
  return held == ARGV[2] .. ' ' .. ARGV[3] and call('DEL', lock) == 1 and '1 empty' or '0 empty'
end
