package lws

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"lockstep.dev/lockstep/internal/identity"
)

// namedAtMost bounds how many objects a message names one by one.
const namedAtMost = 8

// inUseFinalizer is what Kubernetes holds a claim by while a pod uses it.
const inUseFinalizer = "kubernetes.io/pvc-protection"

// haunting is what is told about the ghosts that a set waits for.
type haunting struct {
	message string
	until   time.Time
	stuck   bool
	// holds is set while nothing new may be made under the set's names.
	holds bool
}

func (h haunting) any() bool { return h.message != "" }

// haunt puts the ghosts worth telling into words. The words depend on the
// ghosts alone, not on the moment, so that looking twice writes nothing.
func (d *setDecision) haunt(blocking []ghost) haunting {
	var told []ghost
	var until time.Time
	for _, g := range blocking {
		if d.worthTelling(g) {
			told = append(told, g)
			continue
		}
		until = earlier(until, d.Vigil.seen(g.Ref, d.Now).Add(reportAfter))
	}
	if len(told) == 0 {
		return haunting{until: until}
	}
	sortGhosts(told)
	h := haunting{message: fmt.Sprintf("waiting for %s of the previous incarnation%s: %s", counted(told), since(told), named(told))}
	stuckAt := d.Vigil.lastMove(told).Add(stuckAfter)
	h.stuck = !d.Now.Before(stuckAt)
	h.until = earlier(until, stuckAt)
	if h.stuck {
		h.message += "; none has left for a minute: " + remedies(told)
		h.until = d.Now.Add(slowLook)
	}
	return h
}

// worthTelling tells whether users should hear of a ghost: it is from before
// this set, or it has been in the way for a while.
func (d *setDecision) worthTelling(g ghost) bool {
	born, ours := g.object.GetCreationTimestamp().Time, d.Set.CreationTimestamp.Time
	if born.Before(ours) {
		return true
	}
	// Times are told in whole seconds. What was born in the set's own may be from
	// before it, if it was in the way from the beginning.
	seen := d.Vigil.seen(g.Ref, d.Now)
	if born.Equal(ours) && seen.Before(ours.Add(reportAfter)) {
		return true
	}
	return !d.Now.Before(seen.Add(reportAfter))
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// counted is "1 statefulset and 12 pods".
func counted(ghosts []ghost) string {
	var parts []string
	for i := 0; i < len(ghosts); {
		j := i
		for j < len(ghosts) && ghosts[j].Kind == ghosts[i].Kind {
			j++
		}
		noun := strings.ToLower(string(ghosts[i].Kind))
		if j-i > 1 {
			noun += "s"
		}
		parts = append(parts, fmt.Sprintf("%d %s", j-i, noun))
		i = j
	}
	return strings.Join(parts, " and ")
}

// since is when the first of the ghosts was deleted, if any was. Its deletion
// timestamp is when its grace period ends.
func since(ghosts []ghost) string {
	var first time.Time
	for _, g := range ghosts {
		if ends := g.object.GetDeletionTimestamp(); ends != nil {
			grace := time.Duration(ptr.Deref(g.object.GetDeletionGracePeriodSeconds(), 0)) * time.Second
			first = earlier(first, ends.Add(-grace))
		}
	}
	if first.IsZero() {
		return ""
	}
	return " (deleted " + first.UTC().Format(time.RFC3339) + ")"
}

func named(ghosts []ghost) string {
	names := make([]string, 0, namedAtMost)
	for _, g := range ghosts[:min(len(ghosts), namedAtMost)] {
		name := g.Name
		if g.Kind != identity.KindPod {
			name = g.String()
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ") + andMore(len(ghosts))
}

func andMore(count int) string {
	if count <= namedAtMost {
		return ""
	}
	return fmt.Sprintf(" and %d more", count-namedAtMost)
}

// remedies says, for each ghost, what holds it and what would release it.
func remedies(ghosts []ghost) string {
	lines := make([]string, 0, namedAtMost)
	for _, g := range ghosts[:min(len(ghosts), namedAtMost)] {
		lines = append(lines, remedy(g))
	}
	return strings.Join(lines, "; ") + andMore(len(ghosts))
}

func remedy(g ghost) string {
	finalizers := g.object.GetFinalizers()
	if g.Kind == identity.KindPersistentVolumeClaim && slices.Equal(finalizers, []string{inUseFinalizer}) {
		return fmt.Sprintf("%s goes when no pod uses it", g)
	}
	if len(finalizers) > 0 {
		return fmt.Sprintf("%s is held by finalizer %s and goes when that is removed", g, clipped(strings.Join(finalizers, ", ")))
	}
	if pod, ok := g.object.(*corev1.Pod); ok && pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" {
		return onNode(g, pod.Spec.NodeName)
	}
	if g.object.GetDeletionTimestamp() == nil {
		return fmt.Sprintf("%s goes when the garbage collector takes it", g)
	}
	return fmt.Sprintf("%s goes when its own dependents are gone", g)
}

// onNode says what lets a pod go whose node has to say that it ended. That its deletion
// is forced is not asked for: a machine that is cut off, and not off, would go on to
// write on its volumes beside the next pod.
func onNode(g ghost, node string) string {
	return fmt.Sprintf("%s goes when node %s confirms that it ended; if that machine is off for certain: kubectl taint node %s %s=nodeshutdown:NoExecute",
		g, node, node, corev1.TaintNodeOutOfService)
}

// Remedy says what holds a pod that is on its way out, and what would release it.
func Remedy(pod *corev1.Pod) string {
	return remedy(ghost{Ref: identity.RefOf(identity.KindPod, pod), object: pod})
}
