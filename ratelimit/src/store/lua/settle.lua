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
-- ARGV[8…]  per correction: 'R' refund, 'E' excess or 'G' give back, amount (double); of a refund what is no longer
--           held and its place (doubles); kind, limit, parameters; of a refund the mark
--
-- Answer: D done; a second byte counts what was passed over because it cannot be read
--         ~ the record is another one by now: read it again   C clocks differ   X nothing can be corrected: unreadable state

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

local buckets, touched, unreadable = {}, {}, 0
for i = 4, #KEYS do
  local key, argument = KEYS[i], ARGV[4 + i]
  local change, amount = struct.unpack('>c1d', argument)
  local b, failed, is_current = buckets[key], nil, false
  if b == nil then
    local fine
    fine, b, failed = pcall(open_bucket, key, argument, change == 'R' and 26 or 10)
    if not fine and not string.find(type(b) == 'table' and b.err or tostring(b), 'WRONGTYPE', 1, true) then
      error(b)
    end
    -- Outside its calendar a correction still finds its own window, if that is stored.
    failed = not fine or (failed and failed ~= 'B')
    touched[#touched + 1] = key
  end
  if not b or failed then
    failed = buckets[key] == nil
  elseif change == 'E' then
    -- In full, above the limit too, whatever the age of the hold.
    b.algorithm.excess(b, amount)
  elseif change == 'G' then
    failed = b.algorithm.give_back(b, amount)
  else
    failed, is_current = b.algorithm.refund(b, argument, b.past, amount)
  end
  local portions = is_current and b.portions
  if portions then
    -- No longer held, whatever was given back.
    local held, place = struct.unpack('>dd', argument, 10)
    for at = 1, #portions, 3 do
      if portions[at] == place and held > 0 then
        b.changed = true
        portions[at + 1] = portions[at + 1] - held
        if portions[at + 1] <= 0 then
          forget_portion(portions, at)
        end
        break
      end
    end
  end
  if failed then
    -- One that cannot be read keeps nothing from the others.
    b, unreadable = false, unreadable + 1
  end
  buckets[key] = b
end
if unreadable > 0 and unreadable == #touched then
  return 'X'
end

-- What comes first can be done when memory is full: from then on a script is not stopped.
if ARGV[5] == '' then
  redis.call('UNLINK', KEYS[1])
else
  local removed = redis.pcall('ZREM', KEYS[2], ARGV[5])
  if type(removed) == 'table' and removed.err then
    if not string.find(removed.err, 'WRONGTYPE', 1, true) then
      return removed
    end
    redis.call('UNLINK', KEYS[1])
    unreadable = unreadable + 1
  end
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[3], id, ARGV[6])
  redis.call('PEXPIRE', KEYS[3], ARGV[7])
end
for _, key in ipairs(touched) do
  local b = buckets[key]
  if b and b.changed then
    b.algorithm.save(b)
  end
end
if unreadable > 0 then
  return 'D' .. string.char(math.min(unreadable, 255))
end
return 'D'
