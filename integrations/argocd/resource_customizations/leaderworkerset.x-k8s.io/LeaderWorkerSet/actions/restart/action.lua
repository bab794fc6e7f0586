-- Replaces every group by one of the same template, at the pace of a rollout.
local os = require("os")
local now = os.date("!%Y-%m-%dT%H:%M:%SZ")

local function annotate(template)
  if template == nil then
    return
  end
  template.metadata = template.metadata or {}
  template.metadata.annotations = template.metadata.annotations or {}
  template.metadata.annotations["kubectl.kubernetes.io/restartedAt"] = now
end

annotate(obj.spec.leaderWorkerTemplate.leaderTemplate)
annotate(obj.spec.leaderWorkerTemplate.workerTemplate)
return obj
