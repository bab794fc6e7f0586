package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Judge returns the key of the revision that it takes for the current one, as it
// finds it by labels; an error where it would make another, and so restart pods.
func (o *Other) Judge(ctx context.Context, set *lwsv1.LeaderWorkerSet) (string, error) {
	sts := &appsv1.StatefulSet{}
	if err := o.client.Get(ctx, client.ObjectKeyFromObject(set), sts); err != nil {
		return "", err
	}
	key := sts.Labels[lwsv1.RevisionKey]
	list := &appsv1.ControllerRevisionList{}
	labels := client.MatchingLabels{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key}
	if err := o.client.List(ctx, list, client.InNamespace(set.Namespace), labels); err != nil {
		return "", err
	}
	var current *appsv1.ControllerRevision
	for i := range list.Items {
		r := &list.Items[i]
		if own(r, set) && (current == nil || r.Revision > current.Revision) {
			current = r
		}
	}
	if current == nil {
		return "", fmt.Errorf("set %s has no revision with key %q", set.Name, key)
	}
	if have, want := current.Data.Raw, Data(set); !bytes.Equal(have, want) && !bytes.Equal(again(set, have), want) {
		return "", fmt.Errorf("revision %s is not what set %s says:\n%s\n%s", current.Name, set.Name, have, want)
	}
	return key, nil
}

// Revisions returns the keys that it finds by the set's name, of revisions that the set or no
// object controls.
func (o *Other) Revisions(ctx context.Context, set *lwsv1.LeaderWorkerSet) (map[string]int, error) {
	list := &appsv1.ControllerRevisionList{}
	err := o.client.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: set.Name})
	keys := map[string]int{}
	for i := range list.Items {
		if own(&list.Items[i], set) {
			keys[list.Items[i].Labels[lwsv1.RevisionKey]]++
		}
	}
	return keys, err
}

// again encodes what other types encoded.
func again(set *lwsv1.LeaderWorkerSet, data []byte) []byte {
	restored := set.DeepCopy()
	restored.Spec.LeaderWorkerTemplate, restored.Spec.NetworkConfig = lwsv1.LeaderWorkerTemplate{}, nil
	if json.Unmarshal(data, &lwsv1.LeaderWorkerSet{}) != nil || json.Unmarshal(data, restored) != nil {
		return nil
	}
	return Data(restored)
}

func own(r *appsv1.ControllerRevision, set *lwsv1.LeaderWorkerSet) bool {
	owner := metav1.GetControllerOf(r)
	return owner == nil || owner.UID == set.UID
}
