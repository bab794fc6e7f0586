-- Says of a DisaggregatedSet what its conditions Ready and Stalled say.
local health = { status = "Progressing", message = "the operator has not seen the present generation of the set" }

if obj.metadata.deletionTimestamp ~= nil then
  health.message = "the set is being deleted"
  return health
end

if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation or obj.status.conditions == nil then
  return health
end

local ready, stalled
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Ready" then
    ready = condition
  elseif condition.type == "Stalled" and condition.status == "True" then
    stalled = condition
  end
end

if ready == nil then
  health.message = "no operator says whether the set is ready"
  return health
end

health.message = ready.message
if ready.status == "True" then
  health.status = "Healthy"
elseif stalled ~= nil then
  health.status = "Degraded"
elseif ready.reason == "RolloutPaused" then
  health.status = "Suspended"
end
return health
