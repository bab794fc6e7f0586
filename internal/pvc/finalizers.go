package pvc

// Finalizer is a finalizer, its owner, and when the owner removes it.
type Finalizer struct {
	Key   string `json:"key"`
	Owner string `json:"owner"`
	Drops string `json:"drops"`
}

const unknownOwner = "unknown"

// owners of finalizers on PVCs and pods.
var owners = map[string]Finalizer{
	PodsFinalizer:                      {Owner: "persistentvolumeclaim-protection-controller", Drops: "no bound pod uses the PVC"},
	BarrierFinalizer:                   {Owner: "lockstep", Drops: PodsFinalizer + " is gone, and a later read finds no bound pod"},
	snapshotFinalizer:                  {Owner: "snapshot-controller", Drops: "the snapshot is taken"},
	cloneFinalizer:                     {Owner: "external-provisioner", Drops: "the clone is made"},
	"foregroundDeletion":               {Owner: "garbage collector", Drops: "all dependents are gone"},
	"orphan":                           {Owner: "garbage collector", Drops: "its dependents are orphaned"},
	"batch.kubernetes.io/job-tracking": {Owner: "job controller", Drops: "the Job has counted the pod"},
}

func finalizerOf(key string) Finalizer {
	f, ok := owners[key]
	if !ok {
		f.Owner, f.Drops = unknownOwner, "its owner decides"
	}
	f.Key = key
	return f
}

func (c Case) finalizers() (all []Finalizer) {
	for _, key := range c.Claim.Finalizers {
		all = append(all, finalizerOf(key))
	}
	return all
}

// Foreign are the finalizers of unknown owners.
func (e Explanation) Foreign() (keys []string) {
	for _, f := range e.Finalizers {
		if f.Owner == unknownOwner {
			keys = append(keys, f.Key)
		}
	}
	return keys
}
