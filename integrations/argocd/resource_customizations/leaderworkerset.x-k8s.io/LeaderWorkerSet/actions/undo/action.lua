-- Goes back to the revision before. The operator's webhook puts its template in place of the annotation.
obj.metadata.annotations = obj.metadata.annotations or {}
obj.metadata.annotations["lockstep.dev/undo-to-revision"] = "0"
return obj
