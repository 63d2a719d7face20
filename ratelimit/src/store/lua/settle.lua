-- Closes a reservation: corrects its buckets and leaves a tombstone. Books usage that had no hold, closes an id
-- before its reserve, and carries out an operator's correction in the same way.
--
-- KEYS[1]   record of the reservation
-- KEYS[2]   open holds of the tenant
-- KEYS[3]   usage events of the tenant that wait: hash by id
-- KEYS[4…]  one bucket per correction; the same one may come again
-- ARGV[1]   the service's clock, ms
-- ARGV[2]   the record as the service has read it and computed with; empty for none
-- ARGV[3]   the tombstone
-- ARGV[4]   its life, ms
-- ARGV[5]   member of the open holds; empty for none
-- ARGV[6]   usage event; empty for none
-- ARGV[7]   how long one waits at most, ms
-- ARGV[8…]  per correction: 'R' refund, 'E' excess or 'G' give back, amount (double), kind, limit, parameters, mark
--
-- Answer: D done   ~ the record is another one by now: read it again   C clocks differ   X unreadable state

now = clock(ARGV[1])
if not now then
  return 'C'
end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[2] then
  return '~'
end

if ARGV[6] ~= '' then
  -- Fails here, before anything is written, where the key holds something else.
  redis.call('HLEN', KEYS[3])
end

local buckets, touched = {}, {}
for i = 4, #KEYS do
  local argument = ARGV[4 + i]
  local change, amount = struct.unpack('>c1d', argument)
  local b = buckets[KEYS[i]]
  if not b then
    local failed
    b, failed = open_bucket(KEYS[i], argument, 10)
    -- Outside its calendar a correction still finds its own window, if that is stored.
    if failed and failed ~= 'B' then
      return failed
    end
    buckets[KEYS[i]] = b
    touched[#touched + 1] = b
  end
  if change == 'E' then
    -- In full, above the limit too, whatever the age of the hold.
    b.algorithm.excess(b, amount)
  elseif change == 'G' then
    local failed = b.algorithm.give_back(b, amount)
    if failed then
      return failed
    end
  else
    local failed = b.algorithm.refund(b, argument, b.past, amount)
    if failed then
      return failed
    end
  end
end

-- ZREM comes first: a script that has written something is not stopped when memory is full.
if ARGV[5] ~= '' then
  redis.call('ZREM', KEYS[2], ARGV[5])
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[3], id, ARGV[6])
  redis.call('PEXPIRE', KEYS[3], ARGV[7])
end
for _, b in ipairs(touched) do
  if b.changed then
    b.algorithm.save(b)
  end
end
return 'D'
