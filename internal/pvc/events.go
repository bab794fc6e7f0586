package pvc

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Carry is the writes for a verdict on a PVC and for one on its release token, in order: the
// first onto the version that was judged.
func Carry(pvc *corev1.PersistentVolumeClaim, d HoldVerdict, token TokenVerdict) (actions []action.Action) {
	because := d.Because
	if len(d.Annotations) == 0 {
		because = token.Because()
	}
	actions = annotate(refOf(pvc), because, append(tellHold(pvc, d), tellToken(token)...), d.Annotations, token.Annotations)
	if d.Delete != nil {
		deleted := action.Event{Reason: d.Delete.Code, Action: "Delete", Note: "deleted: " + d.Delete.Sentence}
		actions = append(actions, action.Delete{Object: refOf(pvc), Because: *d.Delete, Tell: action.Telling{Done: []action.Event{deleted}}})
	}
	return actions
}

// CarryCount is the same for a namespace: how many of its PVCs are held, and its release token.
func CarryCount(namespace metav1.Object, pvcs []corev1.PersistentVolumeClaim, token TokenVerdict) []action.Action {
	because := action.Reason{Code: "HeldClaims", Sentence: "the number of held PVCs or the release of the namespace changed"}
	return annotate(identity.RefOf(identity.KindNamespace, namespace), because, tellToken(token), CountHeld(namespace, pvcs), token.Annotations)
}

// annotate is the write of some changes of annotations, or nothing.
func annotate(object identity.Ref, because action.Reason, done []action.Event, changes ...map[string]string) []action.Action {
	all := map[string]string{}
	for _, change := range changes {
		maps.Copy(all, change)
	}
	if len(all) == 0 {
		return nil
	}
	return []action.Action{action.Annotate{Object: object, Annotations: all, Because: because, Tell: action.Telling{Done: done}}}
}

// tellHold is the event of a hold that begins or ends. New names have no event.
func tellHold(pvc *corev1.PersistentVolumeClaim, d HoldVerdict) []action.Event {
	stood := pvc.Annotations[HoldersAnnotation]
	stands, changes := d.Annotations[HoldersAnnotation]
	switch {
	case !changes || pvc.DeletionTimestamp != nil:
	case stands != "" && (stood == "" || stood == Unverified):
		return []action.Event{{Reason: "Held", Action: "Hold", Note: "its deletion is refused from now on: " + d.Because.Sentence}}
	case stands == "" && stood != Unverified:
		return []action.Event{{Reason: "HoldEnded", Action: "Hold", Note: "its deletion is refused no more: " + d.Because.Sentence}}
	}
	return nil
}

// tellToken is the event of a release token that begins or expires.
func tellToken(token TokenVerdict) []action.Event {
	switch {
	case token.Granted:
		return []action.Event{{Warning: true, Reason: "ReleaseGranted", Action: "Release",
			Note: "a DELETE is accepted until " + token.Until.UTC().Format(time.RFC3339) + ", though it is in use"}}
	case token.Expired:
		return []action.Event{{Reason: "ReleaseExpired", Action: "Release", Note: "its release expired without a DELETE"}}
	}
	return nil
}

// ReleaseUsed is the reason of the event for a deletion that a release let through.
const ReleaseUsed = "Released"

// TellLeft is the event of a PVC that was deleted in use: after a release, or after a warning.
func TellLeft(pvc *corev1.PersistentVolumeClaim) (event action.Event, ok bool) {
	names := ParseHolders(pvc.Annotations[HoldersAnnotation]).Names
	observed := pvc.Annotations[ObservedAnnotation]
	switch {
	case names != "" && names != Unverified && Released(pvc):
		return action.Event{Warning: true, Reason: ReleaseUsed, Action: "Release",
			Note: "deleted though it was in use by " + names + ": it had been released"}, true
	case observed != "":
		return action.Event{Warning: true, Reason: "DeletedInUse", Action: "Delete",
			Note: "deleted though it is wanted by " + observed + ": nothing refuses that here"}, true
	}
	return action.Event{}, false
}

// TellNamespaceLeft is the event of a namespace that was released and deleted with PVCs in use.
func TellNamespaceLeft(namespace metav1.Object) (event action.Event, ok bool) {
	held := namespace.GetAnnotations()[HeldClaimsAnnotation]
	if held == "" || held == "0" || !Released(namespace) {
		return action.Event{}, false
	}
	return action.Event{Warning: true, Reason: ReleaseUsed, Action: "Release",
		Note: "deleted though PVCs in it were in use: " + held + ". They had been released, and go with it"}, true
}

// TellDoomed is the event of a terminating PVC that workloads still want.
func TellDoomed(d HoldVerdict) action.Event {
	return action.Event{Warning: true, Reason: "Doomed", Action: "Judge",
		Note: "is being deleted with its last pod; still wanted by " + few(wanting(d.Holders)) + ". To keep the data, set the volume's reclaim policy to Retain"}
}
