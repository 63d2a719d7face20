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

-- The moment of the decision, and the reservation it is about.
local now
local id = string.sub(KEYS[1] or '', -32)

-- By kind. Each has
--   open(b, text, at)      reads parameters and state, brings the state to now; returns where the parameters
--                          end, then a letter if it cannot: X unreadable, B outside the calendar's boundaries
--   room(b)                what still fits
--   charge(b, amount)      adds the amount whether it fits or not; returns the mark
--   refund(b, text, at, amount)   the mark stands at `at`; returns X where the state is unreadable
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
