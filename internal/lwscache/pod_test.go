package lwscache_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A new leader finds the workers that a StatefulSet of its name controls, in its set and namespace alone.
func TestALeaderFindsTheGroupBeforeIt(t *testing.T) {
	leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0", Labels: map[string]string{lwsv1.SetNameLabelKey: "w"}}}
	for name, tt := range map[string]struct {
		worker, set, owner string
		elsewhere          bool
		want               bool
	}{
		"a worker":               {worker: "w-0-1", set: "w", owner: "w-0", want: true},
		"above the size":         {worker: "w-0-17", set: "w", owner: "w-0", want: true},
		"of another group":       {worker: "w-1-1", set: "w", owner: "w-1"},
		"of another set":         {worker: "w-0-1", set: "w-0", owner: "w-0"},
		"of no StatefulSet":      {worker: "w-0-1", set: "w"},
		"in another namespace":   {worker: "w-0-1", set: "w", owner: "w-0", elsewhere: true},
		"without a cache, never": {worker: "w-0-1", set: "w", owner: "w-0"},
	} {
		store := fakeapi.New()
		if err := lwscache.Index(context.Background(), store); err != nil {
			t.Fatal(err)
		}
		pod := fakeapi.Pod(tt.worker, tt.set, 1)
		if tt.owner != "" {
			fakeapi.OwnedBy(pod, "apps/v1", fakeapi.Former(identity.KindStatefulSet, tt.owner))
		}
		if tt.elsewhere {
			pod.Namespace = "elsewhere"
		}
		fakeapi.Add(store, pod)
		kin := lwscache.NewKin(store.Cached(), store.Live())
		if name == "without a cache, never" {
			kin = lwscache.NewKin(nil, store.Live())
		}
		if got, err := kin.HasGroup(t.Context(), leader); err != nil || got != tt.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
