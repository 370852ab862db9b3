-- Waiting: for the verbs that put a waiter into the queue or keep it there.

local DEEP = 128 -- waiters looked at to say when asking can help

-- After how many ms asking can help a waiter with so many ahead: when everybody ahead has run out of patience and, if
-- nothing is vacant or the waiter is the head and needs more, a holding ends by itself. -1: none will.
local function helps(ahead)
  local ms = ahead > 0 and vacant() and 0 or soonest()
  if ms < 0 then return -1 end
  if ahead > 0 then
    for _, token in ipairs(call('ZRANGE', queue, 0, math.min(ahead, DEEP) - 1)) do
      ms = math.max(ms, patienceleft(token))
    end
  end
  return ms + 1
end

-- Keeps the keys of the queue for one patience and a little more, never shorter than they have. Not at every call: only
-- once most of that little is used up. What is known of waiters and holders is kept for longer than any place.
local function keep(patience)
  for _, key in ipairs({ queue, alive }) do
    if call('PTTL', key) < patience + 200 then call('PEXPIRE', key, patience + 500) end
  end
  for _, key in ipairs(kept()) do
    if call('PTTL', key) < patience + 650 then call('PEXPIRE', key, patience + 950) end
  end
end
