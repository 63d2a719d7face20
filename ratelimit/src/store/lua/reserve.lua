-- Holds all charges of a request, or none.
--
-- KEYS[1]   record of the reservation
-- KEYS[2]   open holds of the tenant: sorted set, score = when the record lapses
-- KEYS[3…]  one bucket per limit
-- ARGV[1]   the service's clock, ms
-- ARGV[2]   first part of the record: 'R', format, attempt, number of limits, identity (8)
-- ARGV[3]   last part of the record
-- ARGV[4]   life of the record, ms
-- ARGV[5]   member for the open holds
-- ARGV[6…]  per limit: kind 'F', limit, amount, length of the window (ms)
--
-- Answer: one letter, then now and per limit start and use as doubles.
--   H held   P held before: the record follows   R refused   G gone   C clocks differ   X unreadable state
-- C and X stand alone. Nothing is written but by H, and the attempt by P.

local now = clock(ARGV[1])
if not now then
  return 'C'
end

-- Everything is read and decided first: a script that fails half way is not rolled back.
local record = redis.call('GET', KEYS[1])
local limits = #KEYS - 2
local start, used, length = {}, {}, {}
local fits = true
for i = 1, limits do
  local kind, limit, amount, window = struct.unpack('>c1ddd', ARGV[5 + i])
  if kind ~= 'F' then
    return 'X'
  end
  start[i], used[i] = current(redis.call('GET', KEYS[2 + i]), now, window)
  if not start[i] then
    return 'X'
  end
  length[i] = window
end

local function answer(letter)
  local parts = { letter, struct.pack('>d', now) }
  for i = 1, limits do
    parts[#parts + 1] = struct.pack('>dd', start[i], used[i])
  end
  return table.concat(parts)
end

local attempt = string.byte(ARGV[2], 3)
if record then
  local letter = string.sub(record, 1, 1)
  if letter == 'R' then
    if #record < 12 or string.sub(record, 1, 2) ~= string.sub(ARGV[2], 1, 2) then
      return 'X'
    end
    if string.sub(record, 5, 12) ~= string.sub(ARGV[2], 5, 12) then
      return answer('G')
    end
    if attempt > string.byte(record, 3) then
      -- From now on a release by the earlier attempt closes nothing.
      record = string.sub(record, 1, 2) .. string.char(attempt) .. string.sub(record, 4)
      redis.call('SET', KEYS[1], record, 'KEEPTTL')
    end
    return answer('P') .. record
  elseif record == 'S' then
    return answer('G')
  elseif letter == 'T' and #record == 2 then
    if attempt <= string.byte(record, 2) then
      return answer('G')
    end
  else
    return 'X'
  end
end

for i = 1, limits do
  local _, limit, amount = struct.unpack('>c1dd', ARGV[5 + i])
  if used[i] + amount > limit then
    fits = false
  end
end
if not fits then
  return answer('R')
end

local lapsed = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, 8)

-- The record comes first: when memory is full the reserve is refused whole.
local starts = {}
for i = 1, limits do
  starts[i] = struct.pack('>d', start[i])
end
redis.call('SET', KEYS[1], ARGV[2] .. table.concat(starts) .. ARGV[3], 'PX', ARGV[4])
for i = 1, limits do
  local _, _, amount = struct.unpack('>c1dd', ARGV[5 + i])
  used[i] = used[i] + amount
  write_bucket(KEYS[2 + i], start[i], used[i], now, length[i])
end
redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[4])), ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if #lapsed > 0 then
  redis.call('ZREM', KEYS[2], unpack(lapsed))
end
return answer('H')
