-- As permits/early_release.lua: the only holder releases, the queue is empty, and the number is there.
if ARGV[5] == '' and call('HGET', holders, ARGV[2]) == ARGV[3] and call('HLEN', holders) == 4
  and call('EXISTS', queue, heartbeats, lines, turns) == 0 and call('EXISTS', number) == 1 then
  read_time()
  if tonumber(call('ZSCORE', permits, ARGV[2]) or 0) > now then
    call('DEL', permits, holders)
    return '1 empty'
  end
end
