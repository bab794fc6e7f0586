package lws

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestWhomAnObjectOfAGangSchedulerConcerns(t *testing.T) {
	named := func(names ...string) (keys []types.NamespacedName) {
		for _, name := range names {
			keys = append(keys, types.NamespacedName{Namespace: "ns", Name: name})
		}
		return keys
	}
	object := func(owner metav1.OwnerReference) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetNamespace("ns")
		o.SetName("w-1-abc")
		o.SetLabels(map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "1"})
		if owner.Kind != "" {
			owner.Controller = new(true)
			o.SetOwnerReferences([]metav1.OwnerReference{owner})
		}
		return o
	}
	tests := []struct {
		name  string
		owner metav1.OwnerReference
		want  []types.NamespacedName
	}{
		{"its leader", metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "w-1"}, named("w-1")},
		{"the leader of another group, which took its name", metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "v-0"}, named("v-0", "w-1")},
		{"nobody", metav1.OwnerReference{}, named("w-1")},
		{"something else", metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "j"}, named("w-1")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, groupOfGang(object(tt.owner))); diff != "" {
				t.Errorf("groups (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(named("w"), setOf(object(tt.owner))); diff != "" {
				t.Errorf("sets (-want +got)\n%s", diff)
			}
		})
	}
}

func TestEveryGroupHearsThatAGangSchedulerCame(t *testing.T) {
	store := fakeapi.New()
	if err := lwscache.Index(context.Background(), store); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"v", "w"} {
		fakeapi.Add(store, fakeapi.Set(name, 2, 2))
		for _, leader := range []string{name + "-0", name + "-1"} {
			fakeapi.Add(store, fakeapi.Pod(leader, name, 0))
		}
	}
	observer := lwscache.New(store.Cached(), store.Live(), lwscache.NewMemory())
	var names []string
	for _, key := range everyGroup(observer) {
		names = append(names, key.Name)
	}
	if diff := cmp.Diff([]string{"v-0", "v-1", "w-0", "w-1"}, names); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
