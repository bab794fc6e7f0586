-- Lets a paused rollout continue, with the changes made meanwhile.
obj.metadata.annotations["lockstep.dev/paused"] = nil
return obj
