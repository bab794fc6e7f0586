-- A paused set is not restarted or undone, and a set that is being deleted is not changed.
local leaving = obj.metadata.deletionTimestamp ~= nil
local annotations = obj.metadata.annotations or {}
local paused = annotations["lockstep.dev/paused"] == "true"

-- Revisions lack fields that the operator does not know.
local unsupported = false
for _, condition in ipairs(obj.status and obj.status.conditions or {}) do
  if condition.type == "Unsupported" and condition.status == "True" then
    unsupported = true
  end
end

return {
  restart = { disabled = leaving or paused },
  undo = { disabled = leaving or unsupported },
  pause = { disabled = leaving or paused },
  resume = { disabled = leaving or not paused },
}
