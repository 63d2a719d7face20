-- The time of a decision is this server's: instances whose clocks differ would count in different windows.
-- service_ms is only compared; nothing is returned when it is more than 30 s away.
local function clock(service_ms)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  if math.abs(now - tonumber(service_ms)) > 30000 then
    return nil
  end
  return now
end
