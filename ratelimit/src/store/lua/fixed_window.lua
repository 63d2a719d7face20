-- limits/fixed_window.rs, word for word. All numbers are whole, at most 2^53, and kept in doubles; they never
-- go through tostring or `..`, which print 14 digits.
--
-- A bucket is 'F', format 1, start of its window (ms), amount used: 18 bytes. The start is in the value, so a
-- key that lives on cannot make a window longer.

local MAX_AMOUNT = 4503599627370496 -- 2^52

-- Start and use of the window of now; nothing for a value of another format.
local function current(value, now, length)
  local start = now - now % length
  if not value then
    return start, 0
  end
  if #value ~= 18 or string.sub(value, 1, 2) ~= 'F\1' then
    return nil
  end
  local stored_start, used = struct.unpack('>dd', value, 3)
  if stored_start == start or stored_start == start + length then
    return stored_start, used
  end
  if stored_start > start then
    return start, used
  end
  return start, 0
end

local function write_bucket(key, start, used, now, length)
  local keep = math.max(start + length - now, 0) + math.min(length, 60000)
  redis.call('SET', key, struct.pack('>c2dd', 'F\1', start, used), 'PX', string.format('%.0f', keep))
end
