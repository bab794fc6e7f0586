package pvc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stated adds those whom the operator has named on the claim: idle ones, where it
// is configured that these hold, and those who were not found, because they are of
// a kind that is not known here or may not be read.
func (c Case) stated(holders, idle []Holder) (all, stillIdle []Holder) {
	words := ParseWords(c.Claim.Annotations[HoldersAnnotation])
	if c.terminating() || words.Names == "" || words.Names == Unverified || !words.Until.IsZero() {
		return holders, idle
	}
	for _, name := range strings.Split(words.Names, ", ") {
		named := func(h Holder) bool { return h.Name == name }
		if name == "" || strings.HasPrefix(name, "+") || slices.ContainsFunc(holders, named) {
			continue
		}
		if i := slices.IndexFunc(idle, named); i >= 0 {
			h := idle[i]
			h.Released = cmp.Or(h.letGo(), saysNoMore)
			holders, idle = append(holders, h), slices.Delete(slices.Clone(idle), i, i+1)
			continue
		}
		holders = append(holders, Holder{
			Name: said(name), Reason: Stated, Proof: "metadata.annotations[" + HoldersAnnotation + "]",
			Released: saysNoMore,
		})
	}
	return holders, idle
}

// saysNoMore is how a holder lets go that is one by the operator's word alone.
const saysNoMore = "the operator takes the word away once it is no longer so"

// letGo are idle holders with what has them let go for good.
func letGo(idle []Holder) []Holder {
	idle = slices.Clone(idle)
	for i := range idle {
		idle[i].Released = idle[i].letGo()
	}
	return idle
}

// letGo is what has an idle holder let go for good: what makes others idle is done to it
// already. One that waits for the claim's end never held it.
func (h Holder) letGo() string {
	if h.AwaitsEnd() {
		return ""
	}
	return "delete it"
}

// maxSaid bounds how much of what others wrote is shown.
const maxSaid = 256

// said is what others wrote, fit to stand in a sentence: whoever may annotate a
// claim must not be able to write over the terminal of who asks about it.
func said(text string) string {
	plain := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if runes := []rune(plain); len(runes) > maxSaid {
		return string(runes[:maxSaid-1]) + "…"
	}
	return plain
}

// explained tells whether a holder truly keeps the claim: its finalizers, whenever
// it is deleted; and, as long as words stand, the refusal of its deletion.
func (c Case) explained(h Holder) Explained {
	e := Explained{Holder: h, Holds: c.keeps(h) || h.Reason != UnboundPod && c.refuses(), Since: moment(h.since)}
	pod := c.Pods[h.UID]
	if pod != nil {
		e.Since = boundSince(pod)
		if pod.DeletionTimestamp != nil {
			e.Leaving = moment(pod.DeletionTimestamp.Time)
		}
	}
	e.Why = c.because(e, pod)
	return e
}

// keeps tells whether a holder keeps finalizers of the claim, deleted or not.
func (c Case) keeps(h Holder) bool {
	return h.Reason == BoundPod || h.Reason == BeingCopied || h.Reason == UnboundPod && c.recorded(h.UID)
}

// recorded tells whether the claim itself names a pod, which may be bound at any
// moment.
func (c Case) recorded(uid types.UID) bool {
	record, err := ParseRecord(c.Claim.Annotations[UsersAnnotation])
	return err == nil && slices.ContainsFunc(record, func(r Recorded) bool { return r.UID == uid })
}

func (c Case) because(e Explained, pod *corev1.Pod) string {
	switch {
	case e.Reason == BoundPod && isOver(corev1.PodPhase(e.Phase)):
		return "the pod has finished; it still holds as long as it is there" + c.goesByItself(pod)
	case e.Reason == BoundPod && pod != nil && pod.DeletionTimestamp != nil:
		return "bound to node " + e.Node + ", and on its way out"
	case e.Reason == BoundPod:
		return "bound to node " + e.Node
	case e.Reason == UnboundPod && c.recorded(e.UID):
		return "about to be bound: the claim names it in its use record"
	case e.Reason == UnboundPod && pod != nil && Gated(pod):
		return c.gated()
	case e.Reason == UnboundPod:
		return "not bound; it does not hold, but will be stranded"
	case e.Reason == BeingCopied:
		return "its finalizer keeps the claim until the copy is made"
	case e.Reason == Stated:
		return "named by the operator; not found here"
	case e.Holds:
		return "its deletion is refused for this"
	case e.Reason == Asked:
		return "said on the claim; nothing enforces it now"
	}
	return "wants the claim, and keeps no finalizer"
}

// gated tells of a pod that mode strict keeps from the scheduler.
func (c Case) gated() string {
	if c.terminating() {
		return "not bound; it does not hold, and is never written on a claim that is on its way out: it will be stranded under the gate " + UseGate
	}
	return "not bound; it waits under the gate " + UseGate + " until the operator has written it on all its claims, and does not hold before; if that lasts, see whether the operator runs"
}

// goesByItself tells of a finished pod whose workload is cleared away in time.
func (c Case) goesByItself(pod *corev1.Pod) string {
	ends, ok := c.workloadOf(pod)
	if !ok || ends.GoesAfter == "" {
		return ""
	}
	return ", and goes with " + string(ends.Workload.Kind) + "/" + ends.Workload.Name + ", " + ends.GoesAfter
}

// boundSince is when a pod was bound, or at least created.
func boundSince(pod *corev1.Pod) *time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue {
			return moment(condition.LastTransitionTime.Time)
		}
	}
	return moment(pod.CreationTimestamp.Time)
}

func moment(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// notes are what no other part of an explanation tells.
func (c Case) notes(e Explanation) []string {
	var notes []string
	note := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	words := c.Claim.Annotations[HoldersAnnotation]
	alive := !c.terminating()
	until := "" // as long as no operator has seen it
	if at := c.Claim.Annotations[ReleaseUntilAnnotation]; at != "" {
		until = ", until " + said(at)
	}
	note(alive && Released(c.Claim), "it bears a release token: a DELETE is let through%s", until)
	note(alive && !Released(c.Claim) && c.Claim.Annotations[ReleaseAnnotation] != "",
		"it bears a release token of another life, which lets nothing through")
	note(alive && words == "" && c.Mode >= Hold && len(Refusing(plain(e.Holders))) > 0,
		"mode %s asks that a DELETE be refused, and nothing on the claim does so yet: see whether the operator runs", c.Mode)
	note(alive && words != "" && c.Unguarded, "annotations of a hold are on it, and the policies that would refuse a DELETE are not there")
	note(e.Refused && words == Unverified, "nobody has looked at it yet: a DELETE is refused until the operator has")
	note(c.isUnconfirmed(e), "no operator has confirmed or ended that in time: see whether one runs, and by its log whether it can read all that may hold claims")
	notes = append(notes, c.mischosen()...)
	wished := alive && c.Claim.Annotations[IntentAnnotation] == string(c.Claim.UID) && c.Claim.UID != ""
	note(wished && c.Mode >= Barrier, "somebody asked for it to be deleted when free: the operator does that once its hold has ended")
	note(wished && c.Mode < Barrier, "somebody asked for it to be deleted when free: in mode %s the operator deletes nothing; it does from barrier on", c.Mode)
	note(c.NamespaceEnding, "its namespace is being deleted")
	err := c.unreadableRecord()
	note(err != nil, "its use record cannot be read, which is as good as in use: %v", err)
	notes = append(notes, c.ownership()...)
	running, refused := c.withoutPodsFinalizer(e)
	note(len(running) > 0, "%s uses it without %s: if the kubelet there restarts, the volume is unmounted under it", and(running), PodsFinalizer)
	note(len(refused) > 0, "%s has not started, and %s is gone: no kubelet starts a pod on such a claim, and it does not mount what it has not mounted by now", and(refused), PodsFinalizer)
	return notes
}

// mischosen reports modes that are no mode, and a wish that names another UID.
func (c Case) mischosen() (notes []string) {
	for _, where := range []struct {
		what string
		in   map[string]string
	}{{"its annotation", c.Claim.Annotations}, {"its namespace's label", c.NamespaceLabels}} {
		word, there := where.in[ModeKey]
		if _, ok := ParseMode(word); there && !ok {
			notes = append(notes, fmt.Sprintf("%s %s is %q, which is ignored; the modes are: %s", where.what, ModeKey, said(word), strings.Join(modes, ", ")))
		}
	}
	if wish, there := c.Claim.Annotations[IntentAnnotation]; there && wish != string(c.Claim.UID) {
		notes = append(notes, "it bears a wish to be deleted when free of another life, which nobody grants")
	}
	return notes
}

// unreadableRecord is what is wrong with the use record, or nil.
func (c Case) unreadableRecord() error {
	_, err := ParseRecord(c.Claim.Annotations[UsersAnnotation])
	return err
}

// ownership says with what the PVC is deleted.
func (c Case) ownership() []string {
	switch {
	case len(c.Claim.OwnerReferences) == 0:
		return nil
	case !c.World.OwnersGone:
		return []string{"owned by " + OwnersOf(c.Claim) + ": the garbage collector deletes it with the last of them"}
	case c.terminating():
		return []string{"its owners are gone or being deleted: " + OwnersOf(c.Claim)}
	}
	return []string{"its owners are gone or being deleted: " + OwnersOf(c.Claim) + "; the garbage collector deletes it unless that is refused; to keep it: " + disownCommand(c.Claim)}
}

// withoutPodsFinalizer are pods that slipped in between the two finalizers, and those
// that came too late to start.
func (c Case) withoutPodsFinalizer(e Explanation) (running, refused []string) {
	if !c.terminating() || slices.Contains(c.Claim.Finalizers, PodsFinalizer) {
		return nil, nil
	}
	for _, h := range e.Holders {
		switch {
		case h.Reason != BoundPod:
		case hasNotStarted(c.Pods[h.UID]):
			refused = append(refused, h.Name)
		default:
			running = append(running, h.Name)
		}
	}
	return running, refused
}

// hasNotStarted tells whether a pod waits for its volumes, as far as its kubelet has told:
// no container of it ever ran.
func hasNotStarted(pod *corev1.Pod) bool {
	if pod == nil || pod.Status.Phase != corev1.PodPending {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil || c.LastTerminationState.Terminated != nil
	})
}

// controllerOf names what controls a pod, which may make another in its place.
func controllerOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return said(owner.Kind + "/" + owner.Name)
	}
	return ""
}
