-- Removes a note if it is still the one that was read: another instance may have renewed it since.
--
-- KEYS[1]   the notes
-- ARGV[1]   name of the note
-- ARGV[2]   the text that was read
-- ARGV[3]   the service's clock, ms
--
-- Answer: 1 removed, 0 it is another one by now, or none, or the clocks differ: then its time may not be over

if not clock(ARGV[3]) then
  return 0
end
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
return redis.call('HDEL', KEYS[1], ARGV[1])
