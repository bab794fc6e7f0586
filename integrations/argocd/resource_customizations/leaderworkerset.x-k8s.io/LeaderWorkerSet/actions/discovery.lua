-- A paused set is not restarted, and a set that is being deleted is not changed.
local leaving = obj.metadata.deletionTimestamp ~= nil
local annotations = obj.metadata.annotations or {}
local paused = annotations["lockstep.dev/paused"] == "true"

return {
  restart = { disabled = leaving or paused },
  pause = { disabled = leaving or paused },
  resume = { disabled = leaving or not paused },
}
