-- A script as a function: it writes the keys of a lock, runs the script on them at a time that is given, returns all that is there
-- afterwards, and deletes the keys. If the script has changed something, it runs a second time.
-- KEYS  all of the lock
-- ARGV  now from to keys... arguments...
--       now: µs; from, to: which of the keys the script declares; keys: as they are returned
-- reply {ran reply messages keys} for each time; ran: 1, or 0 if the reply is an error; keys: for each the command that writes it,
--       when it expires, and the command's arguments, all separated; empty if there is no such key
local real, realp, at = redis.call, redis.pcall, ARGV[1]
local now, ends, sent = tonumber(at), {}, {}

local function run(KEYS, ARGV, redis)
  SCRIPT
end

local function integer(ms)
  ms = tonumber(ms)
  if ms ~= math.floor(ms) then error('value is not an integer') end
  return ms
end

-- handle is the place of redis.call: the server's clock is the argument, keys expire by it, and nothing is published.
local function handle(call, command, key, ...)
  if command == 'TIME' then return { string.sub(at, 1, -7), tostring(tonumber(string.sub(at, -6))) } end
  if command == 'PUBLISH' then
    sent[#sent + 1] = ...
    return 0
  end
  if command == 'PTTL' then
    return real('EXISTS', key) == 0 and -2 or ends[key] and math.floor((ends[key] - now) / 1000) or -1
  elseif command == 'PEXPIRE' then
    local ms = integer(...)
    if real('EXISTS', key) == 0 then return 0 end
    if ms <= 0 then real('DEL', key) else ends[key] = now + ms * 1000 end
    return 1
  elseif command == 'SET' then
    local args, ms = { ... }, nil
    if args[#args - 1] == 'PX' then
      ms, args[#args], args[#args - 1] = integer(args[#args]), nil, nil
    end
    local reply = call('SET', key, unpack(args))
    if reply then ends[key] = ms and now + ms * 1000 end
    return reply
  elseif (command == 'ZADD' or command == 'HSET' or command == 'HINCRBY') and real('EXISTS', key) == 0 then
    ends[key] = nil
  elseif string.find(command, 'EXPIRE') or string.find(command, 'TTL') or string.find(command, '[GS]ETEX') then
    error('step.lua does not know ' .. command)
  end
  return call(command, key, ...)
end

local readers = { number = 'GET', lock = 'GET', resized = 'GET', holders = 'HGETALL' }

local function items_of(key)
  local reader = readers[string.match(key, '%w+$')] or 'ZRANGE'
  if reader == 'GET' then
    local text = real('GET', key)
    return text and { 'SET', '', text } or {}
  elseif reader == 'HGETALL' then
    local items = real('HGETALL', key)
    return items[1] and { 'HSET', '', unpack(items) } or {}
  end
  local items = real('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #items, 2 do items[i], items[i + 1] = items[i + 1], items[i] end
  return items[1] and { 'ZADD', '', unpack(items) } or {}
end

local function once()
  sent = {}
  local ok, reply = pcall(run, { unpack(KEYS, ARGV[2], ARGV[3]) }, { unpack(ARGV, 4 + #KEYS) }, {
    call = function(...) return handle(real, ...) end,
    pcall = function(...) return handle(realp, ...) end,
  })
  if not ok and type(reply) == 'table' then reply = reply.err end
  local keys, changed = {}, false
  for i, key in ipairs(KEYS) do
    local items = items_of(key)
    if items[1] then items[2] = string.format('%.0f', ends[key] or 0) end
    keys[i] = table.concat(items, '\31')
    changed = changed or keys[i] ~= ARGV[3 + i]
  end
  return { ok and 1 or 0, reply, sent, keys }, changed
end

for i, key in ipairs(KEYS) do
  local items = {}
  for item in string.gmatch(ARGV[3 + i], '[^\31]+') do items[#items + 1] = item end
  if items[1] then
    ends[key] = items[2] ~= '0' and tonumber(items[2]) or nil
    real(items[1], key, unpack(items, 3))
  end
end
local first, changed = once()
local second = changed and once() or nil
real('DEL', unpack(KEYS))
return { first, second }
