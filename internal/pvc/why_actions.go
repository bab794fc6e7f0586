package pvc

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// deed is one object to act upon, and who goes with it.
type deed struct {
	Suggestion
	// pods that go with a workload: one alone is told to go without it.
	pods []Explained
	// wanted: the workload itself holds, and its pods would come again.
	wanted bool
}

// actions is the smallest set that frees the claim: as few objects acted upon as
// can be, and of two such the one that ends less. Each holder belongs to one object
// at the top of its chain and to no other, so that the best for each is the best
// for all.
func (c Case) actions(holders []Explained, blockers []Blocker) []Suggestion {
	deeds := map[string]*deed{}
	var order []string
	for _, h := range holders {
		if !h.Holds || h.Leaving != nil {
			continue // leaving: it goes by itself, or what keeps it is told
		}
		key, d := c.deedFor(h)
		if !d.wanted && c.endsWithItsNode(h) {
			continue // it goes with what gives up its node, and with nothing else
		}
		switch known := deeds[key]; {
		case known == nil:
			deeds[key] = &d
			order = append(order, key)
		case h.Reason == DesiredState: // it knows how far it has to be scaled, and its pods do not
			known.Do, known.Command = d.Do, d.Command
		}
		deeds[key].add(h)
	}
	var actions []Suggestion
	for _, key := range order {
		actions = append(actions, c.told(deeds[key]))
	}
	actions = append(actions, unblocking(holders, blockers)...)
	actions = append(actions, patience(holders, blockers)...)
	actions = append(actions, c.foreign()...)
	return append(actions, c.overdue(holders)...)
}

func (d *deed) add(h Explained) {
	d.Frees = append(d.Frees, h.Name)
	if isPod(h) {
		d.pods = append(d.pods, h)
	}
}

func isPod(h Explained) bool { return h.Reason == BoundPod || h.Reason == UnboundPod }

// told turns one pod of a workload that wants nothing else here into its deletion.
func (c Case) told(d *deed) Suggestion {
	if len(d.pods) == 1 && !d.wanted {
		s := c.deletePod(d.pods[0])
		s.Frees = d.Frees
		return s
	}
	return d.Suggestion
}

// deedFor is what frees one holder, under a key that it shares with all that go
// with the same object: the pods of a workload go with the workload.
func (c Case) deedFor(h Explained) (key string, d deed) {
	key = h.Name + "/" + string(h.UID)
	switch {
	case h.Reason == DesiredState:
		d.Do, d.Command = h.Name+": "+h.Released+ends(h), scale(h)
		d.wanted = true
		return key, d
	case !isPod(h):
		d.Do, d.Command = h.Name+": "+h.Released, c.unsay(h)
		return key, d
	}
	if top, ok := c.workloadOf(c.Pods[h.UID]); ok && (!isOver(corev1.PodPhase(h.Phase)) || top.Idle == finished) {
		name := string(top.Workload.Kind) + "/" + top.Workload.Name
		d.Do, d.Command = name+": "+top.Released, scaleTo(top.Workload, 0)
		if top.Idle == finished {
			d.Do, d.Command = "delete "+name, deletion(top.Workload)
		}
		d.wanted = c.refuses() && c.wants(top)
		return name + "/" + string(top.Workload.UID), d
	}
	d.Suggestion = c.deletePod(h)
	return key, d
}

// wants tells whether a workload wants the claim now.
func (c Case) wants(top *Want) bool {
	holders, _ := c.World.Holders(c.Claim)
	return slices.ContainsFunc(holders, func(h Holder) bool { return h.UID == top.Workload.UID })
}

func (c Case) deletePod(h Explained) Suggestion {
	s := Suggestion{Do: "delete " + h.Name, Command: "kubectl delete pod " + h.Object.Name + " -n " + c.Claim.Namespace}
	pod := c.Pods[h.UID]
	if pod == nil {
		return s
	}
	_, known := c.workloadOf(pod)
	if by := controllerOf(pod); by != "" && !known {
		s.Do += " (" + by + " controls it, and may make another)"
	}
	return s
}

// unsay is the command that takes a person's hold away.
func (c Case) unsay(h Explained) string {
	if h.Reason != Asked {
		return ""
	}
	return fmt.Sprintf("kubectl annotate pvc %s -n %s %s-", c.Claim.Name, c.Claim.Namespace, HoldAnnotation)
}

// ends says what else goes when a workload is scaled below one of its claims: those
// with higher numbers go first.
func ends(h Explained) string {
	if more := h.replicas - h.below; more > 1 && h.Phase == "" {
		return fmt.Sprintf("; scaled, it ends %d of its %d replicas", more, h.replicas)
	}
	return ""
}

// workloadOf is the workload that would make a deleted pod again.
func (c Case) workloadOf(pod *corev1.Pod) (top *Want, ok bool) {
	if pod == nil {
		return nil, false
	}
	next := types.UID("")
	if i := slices.IndexFunc(pod.OwnerReferences, isController); i >= 0 {
		next = pod.OwnerReferences[i].UID
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

// unblocking are the remedies for those that are told to leave and cannot, or could
// not if they were. One remedy may do for several.
func unblocking(holders []Explained, blockers []Blocker) []Suggestion {
	var actions []Suggestion
	for _, b := range blockers {
		if !slices.ContainsFunc(holders, func(h Explained) bool { return h.Name == b.Of && h.Holds }) {
			continue
		}
		do := b.Remedy
		if strings.HasPrefix(b.What, "finalizer ") {
			do = b.Of + ", " + b.What + ": " + b.Remedy
		}
		i := slices.IndexFunc(actions, func(s Suggestion) bool { return s.Do == do })
		if i < 0 {
			actions = append(actions, Suggestion{Do: do, Command: b.Command})
			i = len(actions) - 1
		}
		if !slices.Contains(actions[i].Frees, b.Of) {
			actions[i].Frees = append(actions[i].Frees, b.Of)
		}
	}
	return actions
}

// patience is for those that go by themselves.
func patience(holders []Explained, blockers []Blocker) []Suggestion {
	var names []string
	for _, h := range holders {
		blocked := slices.ContainsFunc(blockers, func(b Blocker) bool { return b.Of == h.Name })
		if h.Holds && h.Leaving != nil && !blocked {
			names = append(names, h.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []Suggestion{{Do: "wait for " + and(names) + " to end", Frees: names}}
}

// foreign are the finalizers that nobody here takes away.
func (c Case) foreign() []Suggestion {
	var actions []Suggestion
	for _, f := range c.finalizers() {
		if f.Owner == unknownOwner {
			actions = append(actions, Suggestion{Do: "ask the owner of finalizer " + f.Key, Frees: []string{"Finalizer/" + f.Key}})
		}
	}
	return actions
}

// overdue is said of finalizers that their owner ought to have taken: nobody holds
// the claim, and everybody was read who could.
func (c Case) overdue(holders []Explained) []Suggestion {
	if !c.terminating() || c.blind() || slices.ContainsFunc(holders, func(h Explained) bool { return h.Holds }) {
		return nil
	}
	if c.wordsInTheWay() {
		return []Suggestion{{
			Do:      "wait for the operator to take the annotation " + HoldersAnnotation + " away, without which no finalizer goes; if no operator runs, release the claim",
			Command: ReleaseCommand(c.Claim), Frees: []string{"Finalizer/" + PodsFinalizer, "Finalizer/" + BarrierFinalizer},
		}}
	}
	f, ok := c.due()
	if !ok {
		return nil
	}
	if c.unreadableRecord() != nil {
		return []Suggestion{{
			Do:      "see for yourself that no pod uses it; then take the annotation " + UsersAnnotation + " away, which may have named one",
			Command: fmt.Sprintf("kubectl annotate pvc %s -n %s %s-", c.Claim.Name, c.Claim.Namespace, UsersAnnotation),
			Frees:   []string{"Finalizer/" + f.Key},
		}}
	}
	do := "see whether kube-controller-manager runs: it takes " + f.Key + " away"
	if f.Owner == "lockstep" {
		do = "see whether the operator of Lockstep runs: it takes " + f.Key + " away"
	}
	switch {
	case !c.late():
		do = "wait some seconds; if it stays, " + do
	case f.Owner == "lockstep":
		do += "; where it is gone for good, lockstep uninstall does"
	}
	return []Suggestion{{Do: do, Frees: []string{"Finalizer/" + f.Key}}}
}

// due is the finalizer that goes next, once nobody holds the claim: P before B,
// which waits for it.
func (c Case) due() (Finalizer, bool) {
	all := c.finalizers()
	if i := slices.IndexFunc(all, func(f Finalizer) bool { return f.Key == PodsFinalizer }); i >= 0 {
		return all[i], true
	}
	i := slices.IndexFunc(all, func(f Finalizer) bool { return f.Key == BarrierFinalizer })
	if i < 0 {
		return Finalizer{}, false
	}
	return all[i], true
}

// late tells whether a claim that nobody holds ought to have gone.
func (c Case) late() bool {
	return c.terminating() && c.Now.After(c.Claim.DeletionTimestamp.Add(lateBy))
}
