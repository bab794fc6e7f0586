package pvc

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Carry is what carries out a verdict about a claim and one about its release token,
// in order: onto the version that was judged, each after the one before.
func Carry(claim *corev1.PersistentVolumeClaim, d HoldVerdict, token TokenVerdict) []action.Action {
	ref := identity.RefOf(identity.KindPersistentVolumeClaim, claim)
	words := maps.Clone(d.Annotations)
	if words == nil {
		words = map[string]string{}
	}
	maps.Copy(words, token.Annotations)
	var actions []action.Action
	if len(words) > 0 {
		a := action.Annotate{Object: ref, Annotations: words, Because: d.Because}
		if len(d.Annotations) == 0 {
			a.Because = token.Because()
		}
		a.Tell.Done = append(tellHold(claim, d), TellToken(token)...)
		actions = append(actions, a)
	}
	if d.Delete != nil {
		told := action.Event{Reason: d.Delete.Because.Code, Action: "Delete", Note: "deleted: " + d.Delete.Because.Sentence}
		actions = append(actions, action.Delete{
			Object: ref, Because: d.Delete.Because, Tell: action.Telling{Done: []action.Event{told}},
		})
	}
	return actions
}

// tellHold reports that a hold begins or ends. That its words change is no news.
func tellHold(claim *corev1.PersistentVolumeClaim, d HoldVerdict) []action.Event {
	stood := claim.Annotations[HoldersAnnotation]
	stands, changes := d.Annotations[HoldersAnnotation]
	switch {
	case !changes || claim.DeletionTimestamp != nil:
	case stands != "" && (stood == "" || stood == Unverified):
		return []action.Event{{Reason: "Held", Action: "Hold", Note: "its deletion is refused from now on: " + d.Because.Sentence}}
	case stands == "" && stood != Unverified:
		return []action.Event{{Reason: "HoldEnded", Action: "Hold", Note: "its deletion is refused no more: " + d.Because.Sentence}}
	}
	return nil
}

// TellToken tells what became of a release token.
func TellToken(token TokenVerdict) []action.Event {
	switch {
	case token.Granted:
		return []action.Event{{Warning: true, Reason: "ReleaseGranted", Action: "Release",
			Note: "whoever may delete it may do so until " + token.Until.UTC().Format(time.RFC3339) + ", though it is in use"}}
	case token.Expired:
		return []action.Event{{Reason: "ReleaseExpired", Action: "Release", Note: "the permission to delete it though it is in use was not made use of, and is over"}}
	}
	return nil
}

// ReleaseUsed is the reason of the event for a deletion that a release let through.
const ReleaseUsed = "Released"

// TellLeft tells of a claim on its way out what stood on it when it was deleted: that
// it was in use, and had been released, or that whoever deleted it was warned. Of one
// that bore no such words nothing is told.
func TellLeft(claim *corev1.PersistentVolumeClaim) (told action.Event, ok bool) {
	names := ParseWords(claim.Annotations[HoldersAnnotation]).Names
	observed := claim.Annotations[ObservedAnnotation]
	switch {
	case names != "" && names != Unverified && Released(claim):
		return action.Event{Warning: true, Reason: ReleaseUsed, Action: "Release",
			Note: "deleted though it was in use by " + names + ": it had been released"}, true
	case observed != "":
		return action.Event{Warning: true, Reason: "DeletedInUse", Action: "Delete",
			Note: "deleted though it is wanted by " + observed + ": who deleted it was warned, and nothing refuses that here"}, true
	}
	return action.Event{}, false
}

// TellNamespaceLeft tells of a namespace on its way out that claims in it were in use,
// and had been released.
func TellNamespaceLeft(namespace metav1.Object) (told action.Event, ok bool) {
	held := namespace.GetAnnotations()[HeldClaimsAnnotation]
	if held == "" || held == "0" || !Released(namespace) {
		return action.Event{}, false
	}
	return action.Event{Warning: true, Reason: ReleaseUsed, Action: "Release",
		Note: "deleted though claims in it were in use: " + held + ". They had been released, and go with it"}, true
}

// TellDoomed tells of a claim on its way out that a workload still wants.
func TellDoomed(d HoldVerdict) action.Event {
	return action.Event{Warning: true, Reason: "Doomed", Action: "Judge",
		Note: "is being deleted, and " + stillWant(wanting(d.Holders)) + ": it stays until its last pod has gone. To keep the data, keep its volume: set the reclaim policy to Retain"}
}
