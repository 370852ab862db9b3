-- An idle mutex: nobody holds it, nobody stands before the asker, nobody is buried.
if ticket == '0' and call('EXISTS', lock, queue, alive) == 0 then
  local f = mark(ttl)
  call('SET', lock, token, 'NX', 'PX', ttl)
  return { 'granted', f, 'empty' }
end
