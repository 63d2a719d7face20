-- Holds all charges of a request, or none.
--
-- KEYS[1]   record of the reservation
-- KEYS[2]   open holds of the tenant: sorted set, score = when the record lapses
-- KEYS[3…]  one bucket per charge
-- ARGV[1]   the service's clock, ms
-- ARGV[2]   beginning of the record: 'R', format, attempt, 0, identity (8), model (8)
-- ARGV[3]   grant (-1 none), prompt tokens, output tokens, choices (0: refuse, whatever fits), least output per choice
--           (-1: all or nothing), plan (8) and what follows it in a record of format 3
-- ARGV[4]   life of the record, ms
-- ARGV[5]   member of the open holds, without the tokens at its end
-- ARGV[6…]  per charge: see common.lua
--
-- Answer: one letter, now, and per charge used, remaining, held, reset, whether it would deny, wait.
--   H held, P held before by the same request: the record follows   R refused   G gone
--   C clocks differ   B outside the calendar's boundaries   X unreadable state: these stand alone
-- Nothing is written but by H, the attempt by P, and by R the count of attempts and what the clock has left behind.

now = clock(ARGV[1])
if not now then
  return 'C'
end
born, lapses = now, now + tonumber(ARGV[4])

-- Everything is read and decided first: a script that fails half way is not rolled back.
local record = redis.call('GET', KEYS[1])
local charges, failed = open_charges(6)
if failed then
  return failed
end

local attempt = string.byte(ARGV[2], 3)
local grant, prompt, output, choices, least = struct.unpack('>ddddd', ARGV[3])

if record then
  local letter = string.sub(record, 1, 1)
  if letter == 'R' then
    local format = string.byte(record, 2)
    if #record < 12 or (format ~= 1 and format ~= 2 and format ~= 3) or (format ~= 1 and #record < 60) then
      return 'X'
    end
    -- Whether the record can be the answer to this request: same_request in decision.rs.
    local same = string.sub(record, 5, 12) == string.sub(ARGV[2], 5, 12)
    if same and format > 1 and choices > 0 then
      local granted, held_prompt, held_output = struct.unpack('>ddd', record, 21)
      if string.sub(record, 13, 20) ~= string.sub(ARGV[2], 13, 20) or held_prompt ~= prompt then
        same = false
      elseif granted ~= grant or held_output < output then
        local clamped = least >= 0 and granted >= least and granted * choices <= held_output
        same = clamped and (grant < 0 or granted <= grant)
      end
    end
    if not same then
      return answer('G', charges)
    end
    if attempt > string.byte(record, 3) then
      -- From now on a release by the earlier attempt closes nothing.
      record = string.sub(record, 1, 2) .. string.char(attempt) .. string.sub(record, 4)
      redis.call('SET', KEYS[1], record, 'KEEPTTL')
    end
    return answer('P', charges) .. record
  elseif record == 'S' then
    return answer('G', charges)
  elseif letter == 'T' and #record == 2 then
    if attempt <= string.byte(record, 2) then
      return answer('G', charges)
    end
  else
    return 'X'
  end
end

local held = choices > 0
for _, b in ipairs(charges) do
  held = held and (b.shadow or b.amount <= b.algorithm.room(b))
end
if not held and choices > 0 and least >= 0 then
  -- The most output that fits, when the whole does not.
  local most = output
  for _, b in ipairs(charges) do
    if not b.shadow and b.per_output > 0 then
      most = math.min(most, math.floor((b.algorithm.room(b) * b.per - b.base) / b.per_output))
    elseif not b.shadow and b.amount > b.algorithm.room(b) then
      most = 0
    end
  end
  local per_choice = math.floor(most / choices)
  if per_choice >= math.max(least, 1) then
    held, grant, output = true, per_choice, per_choice * choices
    for _, b in ipairs(charges) do
      if b.per_output > 0 then
        b.amount = math.ceil((b.base + b.per_output * output) / b.per)
      end
    end
  end
end

local entries, count = {}, 0
for _, b in ipairs(charges) do
  weigh(b)
  if b.attempts then
    b.algorithm.charge(b, b.amount)
    b.save = true
    if not b.fits then
      local fitted = b.fits
      weigh(b)
      b.fits = fitted
    end
  elseif held and b.fits then
    count = count + 1
    entries[count] = entry(b)
    b.save = true
  elseif not held then
    -- A state that is ahead of a clock that went back would stay there as long as everything is refused.
    b.save = b.went_back
  end
end

-- The open holds come first: when memory is full, or they are no sorted set, the reserve is refused whole.
if held then
  redis.call('ZADD', KEYS[2], lapses, ARGV[5] .. digits(prompt + output))
  local head = string.sub(ARGV[2], 1, 3) .. string.char(count) .. string.sub(ARGV[2], 5)
  local body = struct.pack('>dddd', grant, prompt, output, now) .. string.sub(ARGV[3], 41) .. table.concat(entries)
  record = head .. body
  redis.call('SET', KEYS[1], record, 'PX', ARGV[4])
end
for _, b in ipairs(charges) do
  if b.save then
    b.algorithm.save(b)
  end
end
if not held then
  return answer('R', charges)
end
-- A day longer than the record: what lapses is looked for by a sweep.
redis.call('PEXPIRE', KEYS[2], lapses - now + 86400000)
return answer('H', charges) .. record
