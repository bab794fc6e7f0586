package protect

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Case is everything an explanation may know. What is nil was not read.
type Case struct {
	Claim    *corev1.PersistentVolumeClaim
	Mode     Mode
	Settings Settings
	World    World
	// Pods by UID, for what keeps a pod from leaving.
	Pods map[types.UID]*corev1.Pod
	// Nodes by name; a node that was looked for and is not there is nil.
	Nodes  map[string]*corev1.Node
	Volume *corev1.PersistentVolume
	// Attached are the nodes that the volume is attached to.
	Attached []string
	Now      time.Time
	// IfDeleted asks what a DELETE would do now.
	IfDeleted bool
}

// Explanation is why a claim is there still, and what would change that.
type Explanation struct {
	Claim string    `json:"claim"`
	UID   types.UID `json:"uid"`
	State State     `json:"state"`
	Mode  string    `json:"mode"`
	// Since is when its deletion was asked for, or its hold was last confirmed.
	Since *time.Time `json:"since,omitempty"`
	// AskedBy is who asked for the deletion. The object cannot tell.
	AskedBy string `json:"askedBy,omitempty"`
	Refused bool   `json:"refused"`
	// Release is the command that lets a DELETE through all the same.
	Release    string       `json:"release,omitempty"`
	Finalizers []Finalizer  `json:"finalizers,omitempty"`
	Holders    []Explained  `json:"holders,omitempty"`
	Idle       []Holder     `json:"idle,omitempty"`
	Blockers   []Blocker    `json:"blockers,omitempty"`
	Actions    []Suggestion `json:"actions,omitempty"`
	// Then is what happens to the data.
	Then []string `json:"then"`
}

// Finalizer is one key, whose it is, and what makes its owner drop it.
type Finalizer struct {
	Key   string `json:"key"`
	Owner string `json:"owner"`
	Drops string `json:"drops"`
}

// Explained is a holder, and whether it truly keeps the claim.
type Explained struct {
	Holder
	Holds bool   `json:"holds"`
	Why   string `json:"why"`
}

// Suggestion is one thing to do.
type Suggestion struct {
	Do string `json:"do"`
	// Frees are the holders that go with it.
	Frees []string `json:"frees"`
}

// Why explains a claim.
func Why(c Case) Explanation {
	holders, idle := c.World.Holders(c.Claim)
	e := Explanation{
		Claim: c.Claim.Namespace + "/" + c.Claim.Name, UID: c.Claim.UID, Mode: c.Mode.String(), Idle: idle,
		State: c.state(holders), Finalizers: c.finalizers(), Refused: c.refuses(),
	}
	c.since(&e)
	if e.Refused {
		e.Release = ReleaseCommand(c.Claim)
	}
	for _, h := range holders {
		e.Holders = append(e.Holders, c.explained(h))
	}
	e.Blockers = c.blockers(e.Holders)
	e.Actions = c.actions(e.Holders)
	e.Then = c.then(holders, idle)
	return e
}

func (c Case) terminating() bool { return c.Claim.DeletionTimestamp != nil }

func (c Case) state(holders []Holder) State {
	switch {
	case c.terminating():
		return HoldView{Claim: c.Claim}.draining(holders)
	case len(holders) > 0:
		return Held
	case !ParseWords(c.Claim.Annotations[HoldersAnnotation]).Until.IsZero():
		return Cooling
	}
	return Free
}

// refuses is what the policy would say to a DELETE: it reads the claim alone.
func (c Case) refuses() bool {
	return c.Claim.Annotations[HoldersAnnotation] != "" && c.Mode >= Hold && !c.terminating() && !Released(c.Claim)
}

func (c Case) since(e *Explanation) {
	if c.terminating() {
		since := c.Claim.DeletionTimestamp.Time
		e.Since, e.AskedBy = &since, "unknown"
		return
	}
	if verified, err := time.Parse(time.RFC3339, c.Claim.Annotations[VerifiedAnnotation]); err == nil {
		e.Since = &verified
	}
}

func (c Case) finalizers() []Finalizer {
	var told []Finalizer
	for _, key := range c.Claim.Finalizers {
		told = append(told, c.finalizer(key))
	}
	return told
}

func (c Case) finalizer(key string) Finalizer {
	f := Finalizer{Key: key}
	switch key {
	case PodsFinalizer:
		f.Owner, f.Drops = "persistentvolumeclaim-protection-controller", "no bound pod names the claim"
		if c.Settings.Alone {
			f.Owner = "lockstep"
		}
	case BarrierFinalizer:
		f.Owner, f.Drops = "lockstep", PodsFinalizer+" is gone, and no bound pod names the claim in a reading after that"
	case snapshotFinalizer:
		f.Owner, f.Drops = "snapshot-controller", "the snapshot of the claim is taken"
	case cloneFinalizer:
		f.Owner, f.Drops = "external-provisioner", "the clone of the claim is made"
	default:
		f.Owner, f.Drops = "unknown", "whoever put it there takes it away"
	}
	return f
}

// explained tells whether a holder truly keeps the claim: its finalizers, once it
// is terminating; the refusal of its deletion before that.
func (c Case) explained(h Holder) Explained {
	e := Explained{Holder: h, Holds: h.Reason == BoundPod || !c.terminating() && c.Mode >= Hold}
	switch {
	case h.Reason == BoundPod && isOver(corev1.PodPhase(h.Phase)):
		e.Why = "the pod has finished; it still holds as long as it is there"
	case h.Reason == BoundPod:
		e.Why = "bound to node " + h.Node
	case h.Reason == UnboundPod && e.Holds:
		e.Why = "not bound; it would be stranded"
	case h.Reason == UnboundPod:
		e.Why = "not bound; it does not hold, but will be stranded"
	case h.Reason == BeingCopied && c.terminating():
		e.Holds, e.Why = true, "its finalizer keeps the claim until the copy is made"
	case e.Holds:
		e.Why = "its deletion is refused for this"
	default:
		e.Why = "wants the claim, and keeps no finalizer"
	}
	return e
}

// actions is the smallest set that frees the claim: each frees what no other does.
func (c Case) actions(holders []Explained) []Suggestion {
	tops := map[string]*Suggestion{}
	var order []string
	for _, h := range holders {
		if !h.Holds {
			continue
		}
		key, do := c.remedy(h)
		if do == "" {
			continue // it goes by itself
		}
		if tops[key] == nil {
			tops[key] = &Suggestion{Do: do}
			order = append(order, key)
		}
		tops[key].Frees = append(tops[key].Frees, h.Name)
	}
	var actions []Suggestion
	for _, key := range order {
		actions = append(actions, *tops[key])
	}
	return append(actions, c.foreign()...)
}

// remedy is what frees one holder, under a key that it shares with all that go
// with the same deed: the pods of a workload go with the workload.
func (c Case) remedy(h Explained) (key, do string) {
	if h.Reason != BoundPod && h.Reason != UnboundPod {
		return h.Name + string(h.UID), h.Name + ": " + h.Released
	}
	pod := c.Pods[h.UID]
	if pod != nil && pod.DeletionTimestamp != nil {
		return "", ""
	}
	if isOver(corev1.PodPhase(h.Phase)) || pod == nil {
		return h.Name + string(h.UID), "delete " + h.Name
	}
	if top, ok := c.workloadOf(pod); ok {
		name := string(top.Workload.Kind) + "/" + top.Workload.Name
		return name + string(top.Workload.UID), name + ": " + top.Released
	}
	return h.Name + string(h.UID), "delete " + h.Name
}

// workloadOf is the workload that would make a deleted pod again.
func (c Case) workloadOf(pod *corev1.Pod) (*Want, bool) {
	next := types.UID("")
	if owners := pod.OwnerReferences; len(owners) > 0 {
		if i := slices.IndexFunc(owners, isController); i >= 0 {
			next = owners[i].UID
		}
	}
	for range maxChain {
		if i, ok := c.World.Desire.byUID[next]; ok {
			top, ending := c.World.Desire.top(&c.World.Desire.wants[i], c.World.Links)
			return top, !ending
		}
		next = c.World.Links[next].Controller
	}
	return nil, false
}

// foreign are the finalizers that nobody here takes away.
func (c Case) foreign() []Suggestion {
	if !c.terminating() {
		return nil
	}
	var actions []Suggestion
	for _, f := range c.finalizers() {
		if f.Owner == "unknown" {
			actions = append(actions, Suggestion{Do: "ask the owner of finalizer " + f.Key, Frees: []string{"Finalizer/" + f.Key}})
		}
	}
	return actions
}

// ReleaseCommand is what a person types to delete a held claim all the same.
func ReleaseCommand(claim *corev1.PersistentVolumeClaim) string {
	return "kubectl lockstep release pvc/" + claim.Name + " -n " + claim.Namespace
}
