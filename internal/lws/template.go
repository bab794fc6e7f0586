package lws

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// systemPrefix begins the keys of every label and annotation of the API.
const systemPrefix = "leaderworkerset.sigs.k8s.io/"

// asFound keeps the template of a StatefulSet or Deployment that another implementation made until the next revision: a
// write of the template would restart its pods. Its revision says what the spec says. The templates may still differ,
// because another version or a webhook wrote this one. An annotation records that the template is kept.
func (d *setDecision) asFound(desired metav1.Object, template *corev1.PodTemplateSpec) {
	annotations := desired.GetAnnotations()
	delete(annotations, AsFoundAnnotationKey) // an annotation of the set is no record
	live, key := d.leadersOwner(), desired.GetLabels()[lwsv1.RevisionKey]
	if live == nil || !workload.BearsName(live, d.Set.Name) || live.key() != key || live.template.Labels[lwsv1.RevisionKey] != key {
		return
	}
	if !d.foundTemplate(live) || d.isDisplaced { // a leader with another placement is replaced anyway
		return
	}
	if live.GetAnnotations()[AsFoundAnnotationKey] == key || !madeAlike(live.template, template) {
		*template = *live.template
		annotations[AsFoundAnnotationKey] = key
	}
}

// foundTemplate reports whether another implementation may have written the template of a
// leader StatefulSet or Deployment: this operator never wrote it, or kept it as found.
func (d *setDecision) foundTemplate(live *leadersOwner) bool {
	annotations := live.GetAnnotations()
	return annotations[AppliedAnnotationKey] == "" || annotations[AsFoundAnnotationKey] == live.key()
}

// madeAlike reports whether an apply of desired leaves live as it is. Defaults of the API
// server may be present or not. Labels and annotations of the API must be equal.
func madeAlike(live, desired *corev1.PodTemplateSpec) bool {
	return contains(live, desired) &&
		equality.Semantic.DeepEqual(systemKeys(live.Labels), systemKeys(desired.Labels)) &&
		equality.Semantic.DeepEqual(systemKeys(live.Annotations), systemKeys(desired.Annotations))
}

func systemKeys(all map[string]string) map[string]string {
	system := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, systemPrefix) {
			system[key] = value
		}
	}
	return system
}

// contains reports whether every field that part sets has the same value in whole. Fields that
// part leaves out may have any value. Lists have the same length and match item by item.
func contains(whole, part any) bool {
	have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(whole)
	if err != nil {
		return false
	}
	want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	if err != nil {
		return false
	}
	return within(have, want)
}

func within(have, want any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case map[string]any:
		have, ok := have.(map[string]any)
		for key, value := range want {
			if !within(have[key], value) {
				return false
			}
		}
		return ok || len(want) == 0
	case []any:
		have, ok := have.([]any)
		return (ok || len(want) == 0) && slices.EqualFunc(have, want, within)
	default:
		return reflect.DeepEqual(have, want)
	}
}

// Fingerprint is a short hash of all fields that object sets.
func Fingerprint(object any) string {
	encoded, err := json.Marshal(object)
	if err != nil {
		return "" // typed API objects always encode
	}
	hash := fnv.New64a()
	_, _ = hash.Write(encoded)
	return hex.EncodeToString(hash.Sum(nil))
}

// displaced reports whether the leaders' template has another placement than the set. To the
// StatefulSet controller that is a new template: the rollout starts with no group replaced.
func (d *setDecision) displaced(owner *leadersOwner) bool {
	return slices.ContainsFunc(workload.Placements, func(placement string) bool { return d.misplaced(owner, d.Set, placement) })
}

// misplaced reports the same of one annotation. A template that was found may say it in another
// way: the metadata has the set's annotation that it was written for.
func (d *setDecision) misplaced(owner *leadersOwner, set *lwsv1.LeaderWorkerSet, placement string) bool {
	if owner.template.Annotations[placement] == workload.LeadersPlacement(set, placement) {
		return false
	}
	return !d.foundTemplate(owner) || owner.GetAnnotations()[placement] != set.Annotations[placement]
}

// unschedulable warns of a leader that needs a topology domain for itself and finds none. The
// message of the scheduler is not repeated: it counts nodes, and changes with each.
func unschedulable(leader *corev1.Pod, topology string) *action.Event {
	if !workload.Unschedulable(leader) {
		return nil
	}
	note := fmt.Sprintf("no node can take leader %s: it needs one with label %s, with a value that no other group has; the pod's events say what nodes lack",
		leader.Name, topology)
	related := &identity.Ref{Kind: identity.KindPod, Namespace: leader.Namespace, Name: leader.Name, UID: leader.UID}
	return warning(CodeLeaderUnschedulable, "Wait", note, related)
}
