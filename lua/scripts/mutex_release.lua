-- Nobody waits.
if call('EXISTS', queue) == 0 then
  local mine = call('GET', lock) == token
  if mine then call('DEL', lock) end
  return { mine and 1 or 0, 'empty', {} }
end
