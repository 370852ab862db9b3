-- acquire: asks for the lock, and joins the queue or only tries.
-- KEYS  queue alive fence lock
-- ARGV  token ttl patience bound ticket
--       ttl, patience in ms, patience 0: only try; bound: the most waiters, 0 for any number; ticket: the one it had,
--       0 for none
-- reply granted fence
--     | queued ticket position fence helps     fence: the last one; helps: ms after which asking can help, -1 unknown
--     | busy
--     | full waiters
local token, ttl, patience, bound, ticket = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- An idle lock: nobody holds it, nobody stands before the asker, nobody is buried.
if ticket == '0' and call('EXISTS', lock, queue, alive) == 0 then
  local f = mark()
  call('SET', lock, token, 'NX', 'PX', ttl)
  return { 'granted', f }
end
