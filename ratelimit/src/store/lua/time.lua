-- The moment by which the other scripts decide.
--
-- KEYS[1]   any key of the service; it is not touched
-- ARGV[1]   the service's clock, ms
--
-- Answer: ms since the Unix epoch; nothing when the clocks differ

return clock(ARGV[1]) or false
