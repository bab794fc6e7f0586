-- Holds the rollout: no further group is replaced, and a new template waits.
obj.metadata.annotations = obj.metadata.annotations or {}
obj.metadata.annotations["lockstep.dev/paused"] = "true"
return obj
