-- Who may hold a mutex: one. KEYS[4] lock is a string, the owner's token; it exists exactly while the lock is held.

local lock = KEYS[4]
