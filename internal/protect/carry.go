package protect

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

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
			Object: ref, OwnerGone: d.Delete.OwnerGone, Because: d.Delete.Because, Tell: action.Telling{Done: []action.Event{told}},
		})
	}
	return actions
}

// tellHold tells that a hold begins or ends. That its words change is no news.
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

// TellDoomed tells of a claim on its way out that a workload still wants.
func TellDoomed(d HoldVerdict) action.Event {
	return action.Event{Warning: true, Reason: "Doomed", Action: "Judge",
		Note: "is being deleted, and " + stillWant(wanting(d.Holders)) + ": it stays until its last pod has gone. To keep the data, keep its volume: set the reclaim policy to Retain"}
}
