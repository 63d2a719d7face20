-- Grants more to a balance, once for each grant.
--
-- KEYS[1]   the balance
-- KEYS[2]   its grants: hash, id of the grant → amount. Kept for good.
-- ARGV[1]   id of the grant
-- ARGV[2]   amount, as a double
--
-- Answer: D done, A there already, K there with another amount, M more than can be counted, X unreadable state;
--         after D and A: granted and spent as doubles

-- Nothing lapses here.
now = 0
local b, failed = open_bucket(KEYS[1], struct.pack('>c1d', 'B', 0), 1)
if failed then
  return failed
end
local amount = struct.unpack('>d', ARGV[2])
local earlier = redis.call('HGET', KEYS[2], ARGV[1])
local letter = 'D'
if earlier then
  if tonumber(earlier) ~= amount then
    return 'K'
  end
  letter = 'A'
else
  if b.granted + amount > MAX_AMOUNT then
    return 'M'
  end
  b.granted = b.granted + amount
  -- The grant comes first: repeated after a failure in between it would be worth nothing, never twice.
  redis.call('HSET', KEYS[2], ARGV[1], digits(amount))
  b.algorithm.save(b)
end
return letter .. struct.pack('>dd', b.granted, b.spent)
