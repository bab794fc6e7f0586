package lws_test

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// recreated is a world whose set was deleted, and is created again once its name is free.
type recreated struct {
	*world
	replicas, size int32
	image          string
	made           map[types.UID]int // pods created since the deletion, by the set's UID
}

// TestASetDeletedAndCreatedAgain: in any order of events and with caches that lag, the
// next incarnation has exactly its pods, creates none twice and none from the previous
// template.
func TestASetDeletedAndCreatedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		how       metav1.DeletionPropagation
		collector bool
	}{
		"background":                   {metav1.DeletePropagationBackground, true},
		"background without collector": {metav1.DeletePropagationBackground, false},
		"foreground":                   {metav1.DeletePropagationForeground, true},
		"orphan":                       {metav1.DeletePropagationOrphan, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, 1, func(t *rapid.T, m *met) {
				w := &recreated{replicas: rapid.Int32Range(1, 3).Draw(t, "replicas"), size: rapid.Int32Range(1, 3).Draw(t, "size"),
					image: rapid.SampledFrom([]string{"image:1", "image:2"}).Draw(t, "image"), made: map[types.UID]int{}}
				w.world = newWorld(t, m, scenario{faults: true, restarts: true}, fakeapi.Set("w", w.replicas, w.size))
				w.grace = time.Duration(rapid.IntRange(0, 8).Draw(t, "grace")) * time.Second
				w.noGC = !tt.collector
				w.settle(allGroups...)
				w.lag()
				w.pass(time.Minute)
				w.Added = w.count
				w.Remove(find[*lwsv1.LeaderWorkerSet](w.cluster, "w"), tt.how)
				w.next = fakeapi.Set("w", w.replicas, w.size, fakeapi.Image(w.image))
				w.run(rapid.IntRange(0, 120).Draw(t, "steps"))
				w.settleAfter(time.Second)
				w.checkNext(tt.how == metav1.DeletePropagationOrphan && w.image == "image:1")
			})
		})
	}
}

// incarnation is the UID of the set at the end of an object's owners.
func (w *recreated) incarnation(object metav1.Object) types.UID {
	for {
		owner := metav1.GetControllerOf(object)
		if owner == nil {
			return ""
		}
		above := w.Objects[fakeapi.Name{Kind: identity.Kind(owner.Kind), Namespace: fakeapi.Namespace, Name: owner.Name}]
		if identity.Kind(owner.Kind) == identity.KindLeaderWorkerSet || above == nil || above.GetUID() != owner.UID {
			return owner.UID
		}
		object = above
	}
}

// count counts a new pod, and checks its template.
func (w *recreated) count(object client.Object) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	uid := w.incarnation(pod)
	w.made[uid]++
	set := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w")
	if image := pod.Spec.Containers[0].Image; set != nil && set.UID == uid && w.next == nil && image != w.image {
		w.t.Fatalf("pod %s of the next incarnation has %s, want %s", pod.Name, image, w.image)
	}
}

// checkNext checks the next incarnation at rest. It takes over all pods, or creates them.
func (w *recreated) checkNext(takesOver bool) {
	set := find[*lwsv1.LeaderWorkerSet](w.cluster, "w")
	if got := brief(set.Status)[available]; got != isAvailable {
		w.t.Fatalf("not available: %v", brief(set.Status))
	}
	pods := fakeapi.All[*corev1.Pod](w.Objects)
	if len(pods) != int(w.replicas*w.size) {
		w.t.Fatalf("%d pods exist, want %d", len(pods), w.replicas*w.size)
	}
	for _, pod := range pods {
		if pod.Spec.Containers[0].Image != w.image || w.incarnation(pod) != set.UID {
			w.t.Fatalf("pod %s of set %s has %s", pod.Name, w.incarnation(pod), pod.Spec.Containers[0].Image)
		}
	}
	want := int(w.replicas * w.size)
	if takesOver {
		want = 0
	}
	if w.made[set.UID] != want {
		w.t.Fatalf("%d pods of the next incarnation were created, want %d", w.made[set.UID], want)
	}
	created := 0
	data, err := lws.RevisionData(set)
	if err != nil {
		w.t.Fatal(err)
	}
	ofSpec := 0
	for _, r := range revisions(w.cluster) {
		if w.incarnation(r) != set.UID || r.Labels[lws.HistoryLabelKey] != "" {
			continue
		}
		if !bytes.Equal(r.Data.Raw, data) {
			w.t.Fatalf("revision %s of the next incarnation has another template", r.Name)
		}
		if ofSpec++; !r.CreationTimestamp.Before(&set.CreationTimestamp) {
			created++
		}
	}
	if created > 1 || ofSpec == 0 {
		w.t.Fatalf("the next incarnation has %d revisions of its template and created %d", ofSpec, created)
	}
}
