-- What all scripts share. The files of the algorithms follow; each is limits/<name>.rs, step for step.
--
-- All numbers are whole, at most 2^53 in size, and kept in doubles. They never go through tostring or `..`, which
-- print 14 digits; redis.call prints all of them up to 2^52.
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

-- By kind. A function is made anew by each call, so a settle, which `corrects`, makes its own and no others. All have
--   open(b, text, at)      reads parameters and state, brings the state to now; returns where the parameters
--                          end, then a letter if it cannot: X unreadable, B outside the calendar's boundaries
--   save(b)                writes the state with its time to live
-- what decides has
--   charge(b, amount)      adds the amount whether it fits or not; returns the mark
--   room(b)                what still fits
--   wait(b, amount)        ms until an amount fits that does not, or -2 unknown, -3 never
--   gauge(b)               used, remaining (below 0 in debt), reset in ms
-- and what corrects
--   refund(b, text, at, amount)   the mark stands at `at`; returns X where the state is unreadable, then whether
--                          what was held can still be among the open holds
--   excess(b, amount)      adds what was used beyond the hold
--   give_back(b, amount)   takes an amount off what is counted now, at most all of it
-- b.portions: what open holds take, absent for nothing. b.place: where a hold of now goes among them; absent: by the
-- hour of the reservation, so that what lapses does not stay held for long.
-- b.went_back: the state was ahead of now and was brought back. b.changed: a correction has changed the state.
local algorithms = {}

-- What was stored may be anything.
local function amount_like(number)
  return number % 1 == 0 and number <= LARGEST and number >= 0
end

local function digits(number)
  return string.format('%.0f', number)
end

-- A bucket's value is its kind, a format, and what the algorithm keeps. Format 2 has, before that, what open holds
-- take: the number of portions, and of each its place, its amount and when the last of its records lapses. Without
-- any it is format 1. In b.portions these three come one after the other; limits/holds.rs, step for step.

-- The value and where the algorithm's part begins; nothing where there is none; then a letter if it is unreadable.
local function read_value(b)
  local value = redis.call('GET', b.key)
  if not value then
    return nil
  end
  local kind, format, count = string.byte(value, 1, 3)
  if kind ~= b.kind_byte then
    return nil, nil, 'X'
  elseif format == 1 then
    return value, 3
  elseif format ~= 2 or not count or #value < 3 + 24 * count then
    return nil, nil, 'X'
  end
  local portions
  for at = 4, 24 * count, 24 do
    local place, amount, ends = struct.unpack('>ddd', value, at)
    if place % 1 + amount % 1 + ends % 1 ~= 0 or amount < 0 then
      return nil, nil, 'X'
    end
    -- Nobody settles what has lapsed.
    if ends > now then
      if portions then
        local last = #portions
        portions[last + 1], portions[last + 2], portions[last + 3] = place, amount, ends
      else
        portions = { place, amount, ends }
      end
    end
  end
  b.portions = portions
  return value, 4 + 24 * count
end

-- A value of what the algorithm keeps. `plain` packs it behind a head without portions, `held` behind one of them.
local function value_of(b, plain, held, ...)
  local portions = b.portions
  local count = portions and #portions or 0
  if count == 0 then
    return struct.pack(plain, b.kind_byte, 1, ...)
  elseif count == 3 then
    return struct.pack(held, b.kind_byte, 2, 1, portions[1], portions[2], portions[3], ...)
  end
  return struct.pack('>BBB' .. string.rep('d', count), b.kind_byte, 2, count / 3, unpack(portions))
    .. string.sub(struct.pack(plain, 0, 0, ...), 3)
end

local function forget_portion(portions, at)
  for _ = 1, 3 do
    table.remove(portions, at)
  end
end

local function open_bucket(key, text, at)
  local b = { key = key }
  b.kind, b.limit = struct.unpack('>c1d', text, at)
  b.algorithm, b.kind_byte = algorithms[b.kind], string.byte(text, at)
  if not b.algorithm then
    return nil, 'X'
  end
  local failed
  b.past, failed = b.algorithm.open(b, text, at + 9)
  return b, failed
end

-- Windows: used, start, until the end.
local window_gauge = not corrects and function(used, limit, left)
  if used == 0 then
    left = 0
  end
  return used, limit - used, left
end
