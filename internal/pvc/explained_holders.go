package pvc

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stated are the holders that the operator named on the PVC and that were not found: their
// kind is unknown here or may not be read.
func (c Case) stated(found []Holder) (stated []Holder) {
	words := ParseWords(c.Claim.Annotations[HoldersAnnotation])
	if c.terminating() || words.Names == Unverified || !words.Until.IsZero() {
		return nil
	}
	for _, name := range strings.Split(words.Names, ", ") {
		if name == "" || strings.HasPrefix(name, "+") || slices.ContainsFunc(found, func(h Holder) bool { return h.Name == name }) {
			continue
		}
		stated = append(stated, Holder{
			Name: said(name), Reason: Stated, Proof: "metadata.annotations[" + HoldersAnnotation + "]",
			Released: "the operator removes the annotation once it no longer holds",
		})
	}
	return stated
}

// maxSaid bounds how much of a text that others wrote is shown.
const maxSaid = 256

// said returns a text that others wrote, without control characters that would change the
// terminal of the reader.
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

// explained adds to a holder whether it keeps the PVC: its finalizers, or the refusal of a
// DELETE.
func (c Case) explained(h Holder) Explained {
	keeps := h.Reason == BoundPod || h.Reason == BeingCopied || h.Reason == UnboundPod && c.recorded(h.UID)
	e := Explained{Holder: h, Holds: keeps || h.Reason != UnboundPod && c.refuses(), Since: moment(h.since)}
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

// recorded reports whether the use record of the PVC names a pod.
func (c Case) recorded(uid types.UID) bool {
	record, err := ParseRecord(c.Claim.Annotations[UsersAnnotation])
	return err == nil && slices.ContainsFunc(record, func(r Recorded) bool { return r.UID == uid })
}

func (c Case) because(e Explained, pod *corev1.Pod) string {
	switch {
	case e.Reason == BoundPod && isOver(corev1.PodPhase(e.Phase)):
		return "the pod has finished; it holds until it is deleted"
	case e.Reason == BoundPod && e.Leaving != nil:
		return "bound to node " + e.Node + ", and terminating"
	case e.Reason == BoundPod:
		return "bound to node " + e.Node
	case e.Reason == UnboundPod && e.Holds:
		return "named in the use record: it may be bound at any moment"
	case e.Reason == UnboundPod && pod != nil && Gated(pod) && !c.terminating():
		return "not scheduled: the operator must record it on its PVCs and remove the gate " + UseGate
	case e.Reason == UnboundPod:
		return "not scheduled: it does not hold, and stays Pending if the PVC is deleted"
	case e.Reason == BeingCopied:
		return "its finalizer stays until the copy is made"
	case e.Reason == Stated:
		return "named by the operator; not found here"
	case e.Holds:
		return "a DELETE is refused for it"
	}
	return "wants the PVC; nothing refuses a DELETE"
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

// confirmedLate is twice the time after which a running operator confirms a hold.
const confirmedLate = 2 * verifyEvery

// notes are facts that no other field of the explanation has.
func (c Case) notes(e Explanation) (notes []string) {
	note := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	annotation, alive := c.Claim.Annotations[HoldersAnnotation], !c.terminating()
	note(alive && Released(c.Claim), "the PVC bears a release token: a DELETE is accepted")
	note(alive && annotation == "" && c.Mode >= Hold && len(Refusing(plain(e.Holders))) > 0,
		"mode %s refuses a DELETE, and the PVC bears no hold yet: check that the operator runs", c.Mode)
	note(alive && annotation != "" && c.Unguarded, "the PVC bears a hold, and no policy enforces it")
	if e.Refused && e.VerifiedAt != nil && c.Now.Sub(*e.VerifiedAt) > confirmedLate {
		note(true, "the operator has not confirmed the hold for %s: check that it runs and may read all workloads", c.Now.Sub(*e.VerifiedAt).Round(time.Hour))
	}
	note(alive && c.Claim.UID != "" && c.Claim.Annotations[IntentAnnotation] == string(c.Claim.UID),
		"delete-when-free is set: from mode barrier on, the operator deletes the PVC once its hold has ended")
	note(c.NamespaceEnding, "the namespace is being deleted")
	note(c.unreadableRecord() != nil, "the use record cannot be read, which counts as in use: %v", c.unreadableRecord())
	if pods := c.withoutPodsFinalizer(e); len(pods) > 0 {
		note(true, "%s use%s the PVC without %s: do not restart the kubelet before the pod has ended", and(pods), third(pods), PodsFinalizer)
	}
	return append(notes, c.ownership()...)
}

func (c Case) unreadableRecord() error {
	_, err := ParseRecord(c.Claim.Annotations[UsersAnnotation])
	return err
}

// ownership says what deletes the PVC together with its owners.
func (c Case) ownership() []string {
	switch {
	case len(c.Claim.OwnerReferences) == 0:
		return nil
	case !c.World.OwnersGone:
		return []string{"owned by " + OwnersOf(c.Claim) + ": the garbage collector deletes it with the last of them"}
	case c.terminating():
		return []string{"its owners are gone or being deleted: " + OwnersOf(c.Claim)}
	}
	return []string{fmt.Sprintf("its owners are gone or being deleted: %s; the garbage collector deletes it unless that is refused; to keep it: kubectl patch pvc %s -n %s --type=merge -p '%s'",
		OwnersOf(c.Claim), c.Claim.Name, c.Claim.Namespace, Disown)}
}

// withoutPodsFinalizer are bound pods of a terminating PVC whose finalizer for pods is gone.
func (c Case) withoutPodsFinalizer(e Explanation) (pods []string) {
	if !c.terminating() || slices.Contains(c.Claim.Finalizers, PodsFinalizer) {
		return nil
	}
	for _, h := range e.Holders {
		if h.Reason == BoundPod {
			pods = append(pods, h.Name)
		}
	}
	return pods
}
