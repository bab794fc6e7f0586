package install

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A StatefulSet that was deleted and created again runs on PVCs whose owner is gone. Their
// hold alone keeps them from the garbage collector.
func TestPVCsInUseWhoseOwnersAreGoneBlock(t *testing.T) {
	owned := func(uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: types.UID(uid), Controller: new(true)}
	}
	other := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: kind, Name: "db", UID: "x"}}
	}
	gone := func(holder string) []string {
		return []string{"prod/data-db-0", "in use by " + holder, "StatefulSet/db", pvc.Disown}
	}
	for name, tt := range map[string]struct {
		holders   string
		owners    []metav1.OwnerReference
		finalizer string // of an owner that is being deleted
		says      []string
	}{
		"of an earlier incarnation":    {"StatefulSet/db", []metav1.OwnerReference{owned("1")}, "", gone("StatefulSet/db")},
		"of this incarnation":          {"StatefulSet/db", []metav1.OwnerReference{owned("2")}, "", nil},
		"of both":                      {"StatefulSet/db", []metav1.OwnerReference{owned("1"), owned("2")}, "", nil},
		"of a kind that is not served": {"StatefulSet/db", other("Unserved"), "", nil},
		"that cannot be read":          {"StatefulSet/db", other("Unread"), "", []string{`Unread "db", which owns PVC "prod/data-db-0"`}},
		"not held":                     {"", []metav1.OwnerReference{owned("1")}, "", nil},
		"without an owner":             {"StatefulSet/db", nil, "", nil},
		"deleted in the foreground":    {"Pod/shell", []metav1.OwnerReference{owned("2")}, metav1.FinalizerDeleteDependents, gone("Pod/shell")},
		"orphaned":                     {"Pod/shell", []metav1.OwnerReference{owned("2")}, metav1.FinalizerOrphanDependents, nil},
	} {
		owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "db", UID: "2"}}
		if tt.finalizer != "" {
			owner.DeletionTimestamp, owner.Finalizers = &metav1.Time{Time: time.Now()}, []string{tt.finalizer}
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "data-db-0", UID: "c", OwnerReferences: tt.owners, Annotations: map[string]string{pvc.HoldersAnnotation: tt.holders},
		}}
		c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(claim, owner).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				switch o.GetObjectKind().GroupVersionKind().Kind {
				case "Unserved":
					return &meta.NoKindMatchError{}
				case "Unread":
					return errors.New("etcd has no leader")
				}
				return c.Get(ctx, key, o, options...)
			},
		}).Build()
		err := (&cluster{Options: Options{Timeout: time.Minute}, client: c}).removal(nil, nil).refuse(t.Context())
		if (err != nil) != (tt.says != nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range tt.says {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v lacks %q", name, err, part)
			}
		}
	}
}

// stage is a cluster with PVCs and what else has fields of ours.
func stage(t *testing.T, objects ...client.Object) *removal {
	t.Helper()
	byNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithIndex(&corev1.Pod{}, "spec.nodeName", byNode).Build()
	r := (&cluster{Options: Options{Out: io.Discard, Timeout: time.Second}, client: c}).removal(nil, nil)
	r.strips = true
	return r
}

func claimWith(name string, leaving bool, finalizers ...string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: name, UID: types.UID(name), Finalizers: finalizers,
		Annotations: map[string]string{pvc.HoldersAnnotation: "Pod/x", pvc.ModeKey: "hold", "mine": "stays"},
	}}
	if leaving {
		claim.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return claim
}

func podOf(claim string, gates ...corev1.PodSchedulingGate) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "of-" + claim, UID: types.UID("pod-" + claim)}}
	pod.Spec.Volumes = fakeapi.Using(claim)
	if pod.Spec.SchedulingGates = gates; len(gates) == 0 {
		pod.Spec.NodeName = "n"
	}
	return pod
}

// A use record that cannot be read blocks only where no built-in controller keeps the PVC.
func TestAnUnreadableRecordBlocks(t *testing.T) {
	for finalizer, blocks := range map[string]bool{pvc.BarrierFinalizer: true, pvc.PodsFinalizer: false} {
		claim := claimWith("leaving", true, finalizer)
		claim.SetAnnotations(map[string]string{pvc.UsersAnnotation: "?"})
		if err := stage(t, claim).refuse(t.Context()); (err != nil) != blocks {
			t.Errorf("with %s: got %v", finalizer, err)
		}
	}
}

// A PVC that is being deleted and in use blocks. One whose pod ends later is not released.
func TestPVCsThatLeaveInUseBlock(t *testing.T) {
	for name, tt := range map[string]struct {
		alone     bool
		finalizer string
	}{"beside the built-in": {false, pvc.BarrierFinalizer}, "alone": {true, pvc.PodsFinalizer}} {
		r := stage(t, claimWith("leaving", true, tt.finalizer), podOf("leaving"))
		r.ours.Alone = tt.alone
		if err := r.refuse(t.Context()); err == nil || !strings.Contains(err.Error(), "prod/leaving (is being deleted)") {
			t.Errorf("%s: got %v", name, err)
		}
		if err := r.stripAll(t.Context()); err == nil || !strings.Contains(err.Error(), "prod/leaving") {
			t.Errorf("%s: stripped: %v", name, err)
		}
		if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: "leaving"}, &corev1.PersistentVolumeClaim{}); err != nil {
			t.Errorf("%s: lost: %v", name, err)
		}
	}
}

// Leaders lose their gate with the installation that ran sets: nothing else takes it off, nor what it cost to delete
// them meanwhile.
func TestLeadersLoseTheirGate(t *testing.T) {
	for _, ofSets := range []bool{true, false} {
		pod := podOf("x", corev1.PodSchedulingGate{Name: lwsv1.GroupReplacementGate}, corev1.PodSchedulingGate{Name: "example.com/mine"})
		pod.Annotations = map[string]string{corev1.PodDeletionCost: "-100"}
		r := stage(t, pod)
		r.ofSets = ofSets
		if err := r.stripAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || (len(pod.Spec.SchedulingGates) == 1) != ofSets {
			t.Errorf("of sets %v: %v, %v", ofSets, pod.Spec.SchedulingGates, err)
		}
		if cost := pod.Annotations[corev1.PodDeletionCost]; (cost == "") != ofSets {
			t.Errorf("of sets %v: deletion cost %q", ofSets, cost)
		}
	}
}

// The way back names the sets that the other implementation refuses, and no others.
func TestSetsThatWorkOnlyHere(t *testing.T) {
	c, live := clusterOf(t)
	for name, spec := range map[string]map[string]any{
		"a": {"groupIdentity": "Hash", "leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(0)}},
		"b": {"groupIdentity": "Hash", "leaderWorkerTemplate": map[string]any{}},
		"c": {"groupIdentity": "Ordinal", "leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(3)}},
		"d": {"leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(3)}},
		"e": {"groupIdentity": "Hash", "leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(3)}},
	} {
		u := Bare(lwsv1.GroupVersion.String(), "LeaderWorkerSet", "ns", name)
		u.Object["spec"] = spec
		if err := live.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	c.Out = &out
	if err := c.sayOnlyHere(t.Context()); err != nil || strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), "ns/a,") || !strings.Contains(out.String(), "ns/e,") {
		t.Errorf("got %v, said %q", err, out.String())
	}
}

// An authority is an installation's if an installer labelled it. Uninstall leaves that of a user.
func TestAnAuthorityOfAUserIsNotInstalled(t *testing.T) {
	for _, isOurs := range []bool{true, false} {
		c, live := clusterOf(t)
		secret := (&shape{}).secret(certs.AuthoritySecret, nil)
		if !isOurs {
			secret.SetLabels(nil)
		}
		if err := live.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		if found := must(c.installed(t.Context())); isIn(secret, found) != isOurs {
			t.Errorf("ours %t: found %q", isOurs, titles(found))
		}
	}
}
