-- Nobody waits.
if call('EXISTS', queue) == 0 then
  return held == ARGV[2] .. ' ' .. ARGV[3] and call('DEL', lock) == 1 and '1 empty' or '0 empty'
end
