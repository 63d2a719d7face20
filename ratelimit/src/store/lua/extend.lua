-- Holds more output for an open reservation, and renews its leases: all of it, or nothing.
--
-- KEYS[1]   record of the reservation
-- KEYS[2]   open holds of the tenant
-- KEYS[3…]  one bucket per charge or lease
-- ARGV[1]   the service's clock, ms
-- ARGV[2]   the record as the service has read it and computed with
-- ARGV[3]   output tokens that are to be held in all, as a double
-- ARGV[4]   member of the open holds as it is
-- ARGV[5]   the same with the new tokens
-- ARGV[6]   when the reservation was made, ms
-- ARGV[7…]  per charge: see common.lua; a concurrency limit stands for its lease
--
-- Answer: D done   R refused   ~ the record is another one by now: read it again
--         C clocks differ   B outside the calendar's boundaries   X unreadable state

now = clock(ARGV[1])
if not now then
  return 'C'
end
local record = redis.call('GET', KEYS[1])
if not record or record ~= ARGV[2] then
  return '~'
end
local charges, failed = open_charges(7)
if failed then
  return failed
end
local score = redis.call('ZSCORE', KEYS[2], ARGV[4])
born, lapses = tonumber(ARGV[6]), tonumber(score or now)

local entries, count = {}, string.byte(record, 4)
for _, b in ipairs(charges) do
  weigh(b)
  if b.kind == 'N' then
    b.save = b.algorithm.renew(b, b.shadow)
    if not b.save then
      return 'R'
    end
  elseif b.fits then
    count = count + 1
    entries[#entries + 1] = entry(b)
    b.save = true
  elseif not b.shadow then
    return 'R'
  end
end

-- 36: before the output tokens, after 'R', format, attempt, entries, identity, model, grant and prompt.
record = string.sub(record, 1, 3) .. string.char(count) .. string.sub(record, 5, 36)
  .. ARGV[3] .. string.sub(record, 45) .. table.concat(entries)
redis.call('SET', KEYS[1], record, 'KEEPTTL')
for _, b in ipairs(charges) do
  if b.save then
    b.algorithm.save(b)
  end
end
if score and ARGV[4] ~= ARGV[5] then
  redis.call('ZREM', KEYS[2], ARGV[4])
  redis.call('ZADD', KEYS[2], score, ARGV[5])
end
return 'D'
