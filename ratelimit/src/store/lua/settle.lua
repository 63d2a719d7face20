-- Closes a reservation: corrects its buckets and leaves a tombstone. Books usage that had no hold, and closes
-- an id before its reserve, in the same way.
--
-- KEYS[1]   record of the reservation
-- KEYS[2]   open holds of the tenant
-- KEYS[3…]  one bucket per correction
-- ARGV[1]   the service's clock, ms
-- ARGV[2]   the record as the service has read it and computed with; empty for none
-- ARGV[3]   the tombstone
-- ARGV[4]   its life, ms
-- ARGV[5]   member of the open holds; empty for none
-- ARGV[6…]  per correction: 'R' refund or 'E' excess, start of the window that was charged, amount, length
--
-- Answer: D done   ~ the record is another one by now: read it again   C clocks differ   X unreadable state

local now = clock(ARGV[1])
if not now then
  return 'C'
end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[2] then
  return '~'
end

local changed = {}
for i = 1, #KEYS - 2 do
  local kind, charged_start, amount, length = struct.unpack('>c1ddd', ARGV[5 + i])
  local start, used = current(redis.call('GET', KEYS[2 + i]), now, length)
  if not start then
    return 'X'
  end
  local before = used
  if kind == 'E' then
    -- In full, above the limit too, whatever the age of the hold.
    used = math.min(used + amount, MAX_AMOUNT)
  elseif start == charged_start then
    -- A refund goes to the window that was charged, or nowhere.
    used = math.max(used - amount, 0)
  end
  if used ~= before then
    changed[#changed + 1] = { KEYS[2 + i], start, used, length }
  end
end

-- ZREM comes first: a script that has written something is not stopped when memory is full.
if ARGV[5] ~= '' then
  redis.call('ZREM', KEYS[2], ARGV[5])
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
for _, bucket in ipairs(changed) do
  write_bucket(bucket[1], bucket[2], bucket[3], now, bucket[4])
end
return 'D'
