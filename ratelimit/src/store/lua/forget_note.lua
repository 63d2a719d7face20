-- Removes a note if it is still the one that was read: another instance may have renewed it since.
--
-- KEYS[1]   the notes
-- ARGV[1]   name of the note
-- ARGV[2]   the text that was read
--
-- Answer: 1 removed, 0 it is another one by now, or none

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
return redis.call('HDEL', KEYS[1], ARGV[1])
