package pvc

import corev1 "k8s.io/api/core/v1"

// Finalizer is one key, whose it is, and what makes its owner drop it.
type Finalizer struct {
	Key   string `json:"key"`
	Owner string `json:"owner"`
	Drops string `json:"drops"`
}

// unknownOwner is said of a finalizer that nobody here knows.
const unknownOwner = "unknown"

// owners of finalizers that may stand on a claim or on a pod.
var owners = map[string]Finalizer{
	PodsFinalizer:                      {Owner: "persistentvolumeclaim-protection-controller", Drops: "no bound pod names the claim"},
	BarrierFinalizer:                   {Owner: "lockstep", Drops: PodsFinalizer + " is gone, and no bound pod names the claim in a reading after that"},
	snapshotFinalizer:                  {Owner: "snapshot-controller", Drops: "the snapshot of the claim is taken"},
	cloneFinalizer:                     {Owner: "external-provisioner", Drops: "the clone of the claim is made"},
	"foregroundDeletion":               {Owner: "garbage collector", Drops: "everything that it owns is gone"},
	"orphan":                           {Owner: "garbage collector", Drops: "what it owns is owned by it no more"},
	"batch.kubernetes.io/job-tracking": {Owner: "job controller", Drops: "the job has counted the pod"},
}

func finalizerOf(key string) Finalizer {
	f, ok := owners[key]
	if !ok {
		f.Owner, f.Drops = unknownOwner, "whoever put it there takes it away"
	}
	f.Key = key
	return f
}

func (c Case) finalizers() []Finalizer {
	var told []Finalizer
	for _, key := range c.Claim.Finalizers {
		f := finalizerOf(key)
		if key == PodsFinalizer && c.Settings.Alone {
			f.Owner = "lockstep"
		}
		told = append(told, f)
	}
	return told
}

// Foreign are the finalizers that nobody here knows: what they keep, their owners
// alone let go.
func (e Explanation) Foreign() []string {
	var keys []string
	for _, f := range e.Finalizers {
		if f.Owner == unknownOwner {
			keys = append(keys, f.Key)
		}
	}
	return keys
}

// podFinalizers are what keeps a pod that is told to leave, or will: those that are
// known go in time, once it is told to.
func podFinalizers(name string, pod *corev1.Pod) []Blocker {
	var found []Blocker
	for _, key := range pod.Finalizers {
		b := Blocker{Of: name, What: "finalizer " + key, Remedy: "ask its owner"}
		if f := finalizerOf(key); f.Owner != unknownOwner {
			if pod.DeletionTimestamp == nil {
				continue
			}
			b.Remedy = "the " + f.Owner + " takes it away when " + f.Drops
		}
		found = append(found, b)
	}
	return found
}
