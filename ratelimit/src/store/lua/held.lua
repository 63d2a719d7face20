-- What open holds take of what is used.
local function held_of(b, used)
  local portions = b.portions
  if not portions then
    return b.kind == 'N' and used or 0
  end
  local held = 0
  for i = 2, #portions, 3 do
    held = held + portions[i]
  end
  return held < used and held < MAX_AMOUNT and held or math.min(used, MAX_AMOUNT)
end
