package pvchold

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// unseen is an API server where a set was just made: who lists all namespaces, as
// caches do, is not shown it yet.
func unseen(t *testing.T, set *appsv1.StatefulSet) *pvccache.Desired {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kinds := map[string]string{
			"statefulsets": "StatefulSet", "deployments": "Deployment", "replicasets": "ReplicaSet", "daemonsets": "DaemonSet", "jobs": "Job", "cronjobs": "CronJob",
		}
		at := strings.Split(r.URL.Path, "/")
		kind, known := kinds[at[len(at)-1]]
		query := r.URL.Query()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !known:
			w.WriteHeader(http.StatusNotFound)
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
		case query.Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			list := map[string]any{"kind": kind + "List", "apiVersion": strings.Join(at[2:4], "/"), "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}}
			if kind == "StatefulSet" && strings.Contains(r.URL.Path, "/namespaces/") {
				list["items"] = []any{set}
			}
			_ = json.NewEncoder(w).Encode(list)
		}
	}))
	desired := desiredFrom(t, server.URL)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = desired.Run(t.Context())
	}()
	t.Cleanup(func() {
		<-ended
		server.CloseClientConnections()
		server.Close()
	})
	for desired.Unread() != "" && t.Context().Err() == nil {
		runtime.Gosched()
	}
	return desired
}

// A claim is made after the workload that wants it, and a cache of workloads may be
// behind that of claims: nobody has looked before the cluster itself was asked.
func TestAClaimStaysUnverifiedUntilTheClusterItselfWasAsked(t *testing.T) {
	for name, wanted := range map[string]bool{"data-db-0": true, "data": false} {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "db", UID: "db"}}
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		l := newLaggingFrom(t, unseen(t, set))
		l.both(space("1", "hold"))
		born := heldByHand(name, "1")
		born.Annotations = map[string]string{pvc.HoldersAnnotation: pvc.Unverified}
		l.both(born)
		claim, want := l.pass(name), ""
		if wanted {
			want = "StatefulSet/db"
		}
		if got := claim.Annotations[pvc.HoldersAnnotation]; got != want {
			t.Errorf("%s is held by %q, want %q", name, got, want)
		}
	}
}

// A chart brings hundreds of claims at once: a look at the cluster for each would be what
// all of them wait for.
func TestClaimsThatComeTogetherShareALook(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "other", UID: "other"}}
	l := newLaggingFrom(t, unseen(t, set))
	l.both(space("1", "hold"))
	born := func(name string) {
		t.Helper()
		claim := heldByHand(name, "1")
		claim.UID = types.UID(name)
		claim.Annotations = map[string]string{pvc.HoldersAnnotation: pvc.Unverified}
		l.both(claim)
	}
	free := func(name string, looks int) {
		t.Helper()
		if got := l.pass(name).Annotations[pvc.HoldersAnnotation]; got != "" || l.looks != looks {
			t.Errorf("%s is held by %q after %d looks in all, want %d", name, got, l.looks, looks)
		}
	}
	born("a")
	born("b")
	born("late")
	free("a", 1)
	free("b", 1)
	born("after") // what wants it may have been made since the look
	free("after", 2)
	l.clock = l.clock.Add(time.Second)
	free("late", 3)
}

// Claims of a set that was deleted or scaled away go together, by a namespace that was
// looked at once: others delete them as soon as nothing refuses it. What nobody else would
// delete has a look of its own.
func TestClaimsThatGoWithTheirOwnersShareALook(t *testing.T) {
	l := newLaggingFrom(t, unseen(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "other", UID: "other"}}))
	l.both(space("1", "hold"))
	left := func(name string) *corev1.PersistentVolumeClaim {
		claim := heldByHand(name, "1")
		claim.Annotations = map[string]string{pvc.HoldersAnnotation: pvc.Unverified}
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "db-1", UID: "gone", Controller: new(true)}}
		return claim
	}
	wish := heldByHand("wish", "1")
	wish.Annotations = map[string]string{pvc.IntentAnnotation: string(wish.UID)}
	for _, claim := range []*corev1.PersistentVolumeClaim{left("data-db-1"), left("logs-db-1"), wish} {
		l.both(claim)
	}
	for i, name := range []string{"data-db-1", "logs-db-1", "wish"} {
		looks := []int{1, 1, 2}[i]
		if claim := l.pass(name); claim.DeletionTimestamp == nil || l.looks != looks {
			t.Errorf("%s is deleted: %t, after %d looks in all, want %d", name, claim.DeletionTimestamp != nil, l.looks, looks)
		}
	}
}

// Who was there when others looked may have gone since: nothing tells of that again.
func TestWhoHasGoneSinceTheSharedLookHoldsNothing(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "other", UID: "other"}}
	l := newLaggingFrom(t, unseen(t, set))
	l.both(space("1", "hold"))
	for _, name := range []string{"first", "used"} {
		claim := heldByHand(name, "1")
		claim.UID = types.UID(name)
		claim.Annotations = map[string]string{pvc.HoldersAnnotation: pvc.Unverified}
		l.both(claim)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "worker", UID: "worker"}}
	pod.Spec.NodeName = "node"
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "used"},
	}}}
	l.is(pod)
	l.pass("first")
	l.must(l.live.Delete(l.Context(), pod))
	if got := l.pass("used").Annotations[pvc.HoldersAnnotation]; got != "" {
		t.Errorf("it is held by %q", got)
	}
}
