-- force_release: ends the leases of all holders up to a fence, and a quarantine, and hands the lock off.
-- KEYS  number store queue heartbeats
-- ARGV  fence_ttl seen
--       seen: the last number that the caller knows; a lease with a higher fence stays, and a quarantine that began later
-- reply released state grants...   as release
local seen = ARGV[2]

local taken, more = release_holders(remove_holders, tonumber(seen))
if pcall(read_clock_of_queue) and served and quarantined() and tonumber(seen) >= served then
  taken, quarantine = true, 0
  call('ZREM', queue, '') -- it takes no memory, so a full server lets the script go on
  call('HSET', heartbeats, 'clock', clock_text())
end
local reply = hand_off(taken and 1 or 0)
if more then reply[2] = 'more' end
return reply
