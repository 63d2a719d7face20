-- What all scripts share. The files of the algorithms follow; each is limits/<name>.rs, step for step.
--
-- All numbers are whole, at most 2^53 in size, and kept in doubles; they never go through tostring or `..`,
-- which print 14 digits.
--
-- Argument of a charge: amount, amount of the prompt alone, amount per output token, divisor of both (doubles),
-- then the known part of a record's entry: kind, limit (double), parameters, flags, buckets' tags, rates.

local MAX_AMOUNT = 4503599627370496 -- 2^52
local LARGEST = 9007199254740992 -- 2^53
local CLOCK_MARGIN_MS = 60000
local SHADOW, ATTEMPTS = 1, 2
local HOUR_MS = 3600000
-- More portions than any algorithm needs; what is held beyond them is not known.
local MOST_PORTIONS = 200

-- The moment of the decision, when the reservation that it holds for was made, and when its record lapses.
local now, born, lapses
-- The reservation it is about.
local id = string.sub(KEYS[1] or '', -32)

-- By kind. Each has
--   open(b, text, at)      reads parameters and state, brings the state to now; returns where the parameters
--                          end, then a letter if it cannot: X unreadable, B outside the calendar's boundaries
--   place(b)               where a hold of now is counted among the open ones; absent: its holds are counted as used
--   room(b)                what still fits
--   charge(b, amount)      adds the amount whether it fits or not; returns the mark
--   refund(b, text, at, amount, held, place)   the mark stands at `at`; so much is no longer held at that place;
--                          returns X where the state is unreadable
--   excess(b, amount)      adds what was used beyond the hold
--   give_back(b, amount)   takes an amount off what is counted now, at most all of it
--   wait(b, amount)        ms until an amount fits that does not, or -2 unknown, -3 never
--   gauge(b)               used, remaining (below 0 in debt), reset in ms
--   save(b)                writes the state with its time to live
-- b.went_back: the state was ahead of now and was brought back. b.changed: a correction has changed the state.
local algorithms = {}

-- What was stored may be anything.
local function whole(number)
  return number % 1 == 0 and number <= LARGEST and number >= -LARGEST
end

local function amount_like(number)
  return number % 1 == 0 and number <= LARGEST and number >= 0
end

local function digits(number)
  return string.format('%.0f', number)
end

-- A bucket's value is its kind, a format, and what the algorithm keeps. Format 2 has, before that, what open holds
-- take: the number of portions, and of each its place, its amount and when the last of its records lapses. Without
-- any it is format 1. limits/holds.rs, step for step.

-- The value and where the algorithm's part begins; nothing where there is none; then a letter if it is unreadable.
local function read_value(b)
  local portions = {}
  b.portions = portions
  local value = redis.call('GET', b.key)
  if not value then
    return nil
  end
  local kind, format, count = string.byte(value, 1, 3)
  if kind ~= string.byte(b.kind) then
    return nil, nil, 'X'
  elseif format == 1 then
    return value, 3
  elseif format ~= 2 or not count or #value < 3 + 24 * count then
    return nil, nil, 'X'
  end
  for at = 4, 24 * count, 24 do
    local place, amount, ends = struct.unpack('>ddd', value, at)
    if not (amount_like(place) and amount_like(amount) and amount_like(ends)) then
      return nil, nil, 'X'
    end
    -- Nobody settles what has lapsed.
    if ends > now then
      local next = #portions
      portions[next + 1], portions[next + 2], portions[next + 3] = place, amount, ends
    end
  end
  return value, 4 + 24 * count
end

-- The beginning of a value, up to the algorithm's part.
local function value_head(b)
  local portions = b.portions
  local count = #portions
  if count == 0 then
    return b.kind .. '\1'
  elseif count == 3 then
    return struct.pack('>c1BBddd', b.kind, 2, 1, portions[1], portions[2], portions[3])
  end
  return struct.pack('>c1BB' .. string.rep('d', count), b.kind, 2, count / 3, unpack(portions))
end

-- Outside these places nothing is given back.
local function keep_places(b, first, last)
  local portions, kept = b.portions, {}
  for i = 1, #portions, 3 do
    if portions[i] >= first and portions[i] <= last then
      local next = #kept
      kept[next + 1], kept[next + 2], kept[next + 3] = portions[i], portions[i + 1], portions[i + 2]
    end
  end
  b.portions = kept
end

local function hold_at(b, place, amount)
  if amount <= 0 then
    return
  end
  local portions = b.portions
  local count = #portions
  for i = 1, count, 3 do
    if portions[i] == place then
      portions[i + 1] = math.min(portions[i + 1] + amount, MAX_AMOUNT)
      portions[i + 2] = math.max(portions[i + 2], lapses)
      return
    end
  end
  if count < 3 * MOST_PORTIONS then
    portions[count + 1], portions[count + 2], portions[count + 3] = place, math.min(amount, MAX_AMOUNT), lapses
  end
end

-- So much is no longer held there.
local function take_off(b, place, amount)
  local portions = b.portions
  for i = 1, #portions, 3 do
    if amount > 0 and portions[i] == place then
      portions[i + 1] = portions[i + 1] - amount
      b.changed = true
      if portions[i + 1] <= 0 then
        for _ = 1, 3 do
          table.remove(portions, i)
        end
      end
      return
    end
  end
end

-- What open holds take of what is used.
local function held_of(b, used)
  if b.kind == 'N' then
    return used
  end
  local held = 0
  for i = 2, #b.portions, 3 do
    held = held + b.portions[i]
  end
  return math.max(math.min(held, used, MAX_AMOUNT), 0)
end

-- Windows and what has none: by the hour of the reservation, so that what lapses does not stay held for long.
local function hour()
  return math.floor(born / HOUR_MS)
end

local function gauge_of(b)
  local used, remaining, reset = b.algorithm.gauge(b)
  return used, remaining, held_of(b, used), reset
end

local function open_bucket(key, text, at)
  local b = { key = key }
  b.kind, b.limit = struct.unpack('>c1d', text, at)
  b.algorithm = algorithms[b.kind]
  if not b.algorithm then
    return nil, 'X'
  end
  local failed
  b.past, failed = b.algorithm.open(b, text, at + 9)
  return b, failed
end

-- Windows: used, start, until the end.
local function window_gauge(used, limit, left)
  if used == 0 then
    left = 0
  end
  return used, limit - used, left
end
