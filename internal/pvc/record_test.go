package pvc_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestUnusable(t *testing.T) {
	lost := func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }
	own := claim("web-scratch")
	controlledBy("Pod", "uid-web")(own)
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		claims pvc.Claims
		want   string
	}{
		{"missing", pod("web", []string{"data"}), nil, `persistentvolumeclaim "data" not found`},
		{"terminating", pod("web", []string{"data"}), pvc.Claims{"data": claim("data", dying)}, `persistentvolumeclaim "data" is being deleted`},
		{"lost, and terminating", pod("web", []string{"data"}), pvc.Claims{"data": claim("data", dying, lost)}, `persistentvolumeclaim "data" bound to non-existent persistentvolume "pv-data"`},
		{"ephemeral", pod("web", nil, ephemeral("scratch")), pvc.Claims{"web-scratch": own}, ""},
		{"ephemeral, missing", pod("web", nil, ephemeral("scratch")), nil, `waiting for ephemeral volume controller to create the persistentvolumeclaim "web-scratch"`},
		{"ephemeral, of another pod", pod("web", nil, ephemeral("scratch")), pvc.Claims{"web-scratch": claim("web-scratch")}, `PVC ns/web-scratch was not created for pod ns/web (pod is not owner)`},
	} {
		expect.Equalf(t, tt.want, pvc.Unusable(tt.pod, tt.claims), "%s", tt.name)
	}
}

func TestRecord(t *testing.T) {
	var r pvc.Record
	var err error
	for _, name := range []string{"b", "a", "b"} {
		r, err = r.With(pvc.Recorded{Name: name, UID: "1"})
	}
	if read, unread := pvc.ParseRecord("a=1,b=1"); err != nil || unread != nil || !slices.Equal(r, read) || r.String() != "a=1,b=1" {
		t.Errorf("got %q, %v; read %v, %v", r, err, read, unread)
	}
	for _, wrong := range []string{"a", "a=", "=1", "a=1,", ",", "a=1,,b=1"} {
		if _, err := pvc.ParseRecord(wrong); err == nil {
			t.Errorf("%q is read as a record", wrong)
		}
	}
	for i := 0; err == nil && i < 10_000; i++ {
		r, err = r.With(pvc.Recorded{Name: "pod-with-a-rather-long-name-in-a-rather-large-set", UID: fakeUID(i)})
	}
	expect.That(t, errors.Is(err, pvc.ErrFull), "a record without bound: %v", err)
}

func gated(gates ...string) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		o.Spec.NodeName = ""
		for _, gate := range gates {
			o.Spec.SchedulingGates = append(o.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
		}
	}
}

func TestDecideGate(t *testing.T) {
	ours := gated("other", pvc.UseGate, "third")
	off, recorded := annotated(pvc.ModeKey, "off"), annotated(pvc.UsersAnnotation, "web=uid-web")
	web := func(names ...string) *corev1.Pod { return pod("web", names, ours) }
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		claims []*corev1.PersistentVolumeClaim
		writes string
		lifts  bool
		waits  string
	}{
		{"two PVCs", web("data", "logs"), claims(claim("data"), claim("logs")), "data logs", true, ""},
		{"one has the record", web("data", "logs"), claims(claim("data", recorded), claim("logs")), "logs", true, ""},
		{"ephemeral, not created yet", pod("web", nil, ephemeral("scratch"), ours), nil, "", true, ""},
		{"not protected, and terminating", web("data"), claims(claim("data", off, dying)), "", true, ""},
		{"missing", web("data", "logs"), claims(claim("data")), "", false, "AwaitingClaim"},
		{"terminating", web("data"), claims(claim("data", dying)), "", false, "ClaimUnusable"},
		{"an unreadable record", web("data"), claims(claim("data", annotated(pvc.UsersAnnotation, "?"))), "", false, "UseNotRecorded"},
		{"another gate", pod("web", []string{"data"}, gated("other")), claims(claim("data")), "", false, ""},
		{"a terminating pod", pod("web", []string{"data"}, ours, leaving(0)), claims(claim("data")), "", false, ""},
	} {
		live := pvc.Claims{}
		for _, c := range tt.claims {
			live[c.Name] = c
		}
		v := pvc.DecideGate(pvc.GateView{Pod: tt.pod, Live: live, Settings: pvc.Settings{Mode: pvc.Barrier}, NamespaceLabels: map[string]string{pvc.ModeKey: "strict"}})
		on := fakeapi.Each(v.Writes, func(w action.Annotate) string { return w.Target().Name })
		expect.Equalf(t, tt.writes, strings.Join(on, " "), "%s: writes", tt.name)
		expect.Equalf(t, tt.waits, v.Waits.Code, "%s: waits for %+v", tt.name, v.Waits)
		expect.Equalf(t, tt.lifts, v.Lift.Target().UID != "", "%s: lifts", tt.name)
		if tt.lifts && (v.Lift.Target().ResourceVersion != tt.pod.ResourceVersion || len(v.Lift.Gates()) != 2 || v.Lift.Gates()[1].Name != "third") {
			t.Errorf("%s: lifts %+v, and leaves %v", tt.name, v.Lift.Target(), v.Lift.Gates())
		}
	}
}

func claims(all ...*corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim { return all }

func TestDecideToken(t *testing.T) {
	token, other := annotated(pvc.ReleaseAnnotation, "uid-data"), annotated(pvc.ReleaseAnnotation, "uid-before")
	ends := func(at string) func(*corev1.PersistentVolumeClaim) {
		return annotated(pvc.ReleaseUntilAnnotation, at)
	}
	const now, soon, far, dated = "2026-11-21T12:00:00Z", "2026-11-21T12:01:00Z", "2026-11-23T12:00:00Z", "2026-11-21T13:00:01Z"
	hour := noon.Add(time.Hour).Add(time.Second)
	for _, tt := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		want  pvc.TokenVerdict
	}{
		{"none", claim("data"), pvc.TokenVerdict{}},
		{"new", claim("data", token), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: dated}, Until: hour, Granted: true}},
		{"of another UID", claim("data", other), pvc.TokenVerdict{}},
		{"without UID", claim("data", annotated(pvc.ReleaseAnnotation, ""), func(c *corev1.PersistentVolumeClaim) { c.UID = "" }), pvc.TokenVerdict{}},
		{"young", claim("data", token, ends(soon)), pvc.TokenVerdict{Until: noon.Add(time.Minute)}},
		{"expired", claim("data", token, ends(now)), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseAnnotation: "", pvc.ReleaseUntilAnnotation: ""}, Expired: true}},
		{"of another UID, dated", claim("data", other, ends(now)), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: ""}}},
		{"dated too far", claim("data", token, ends(far)), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: dated}, Until: hour}},
		{"unreadable date", claim("data", token, ends("soon")), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: dated}, Until: hour}},
		{"removed", claim("data", ends(soon)), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: ""}}},
		{"used", claim("data", token, ends(now), dying), pvc.TokenVerdict{}},
	} {
		diff := cmp.Diff(tt.want, pvc.DecideToken(tt.claim, noon, time.Hour), cmpEmpty)
		expect.That(t, diff == "", "%s (-want +got):\n%s", tt.name, diff)
	}
}

func TestCountHeld(t *testing.T) {
	held := annotated(pvc.HoldersAnnotation, "StatefulSet/db")
	two := []corev1.PersistentVolumeClaim{*claim("a", held), *claim("b"), *claim("c", held), *claim("d", held, dying)}
	for _, tt := range []struct {
		name, count string // "-" for none
		ending      bool
		claims      []corev1.PersistentVolumeClaim
		want        map[string]string
	}{
		{"for the first time", "-", false, two, map[string]string{pvc.HeldClaimsAnnotation: "2"}},
		{"as before", "2", false, two, nil},
		{"another number", "7", false, two, map[string]string{pvc.HeldClaimsAnnotation: "2"}},
		{"no more", "2", false, nil, map[string]string{pvc.HeldClaimsAnnotation: ""}},
		{"none, and an empty annotation", "", false, nil, map[string]string{pvc.HeldClaimsAnnotation: ""}},
		{"none, as before", "-", false, nil, nil},
		{"terminating", "-", true, two, nil},
	} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Annotations: map[string]string{}}}
		if tt.count != "-" {
			namespace.Annotations[pvc.HeldClaimsAnnotation] = tt.count
		}
		if tt.ending {
			namespace.DeletionTimestamp = &metav1.Time{Time: noon}
		}
		expect.Equalf(t, tt.want, pvc.CountHeld(namespace, tt.claims), "%s", tt.name)
	}
}

const (
	ns = "ns"
	p  = pvc.PodsFinalizer
	b  = pvc.BarrierFinalizer
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// claim is a living claim with both finalizers.
func claim(name string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	return fakeapi.Edited(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7",
			Finalizers: []string{p, b}, Annotations: map[string]string{},
		},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
	}, edits...)
}

func dying(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: noon} }

func finalizers(f ...string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Finalizers = f }
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations[key] = value }
}

func controlledBy(kind string, uid types.UID) func(metav1.Object) {
	yes := true
	return func(o metav1.Object) {
		version := "apps/v1"
		if kind == "Pod" {
			version = "v1"
		}
		o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "owner", UID: uid, Controller: &yes}))
	}
}

// pod is a running pod on node n1 that names the claims.
func pod(name string, claims []string, edits ...func(*corev1.Pod)) *corev1.Pod {
	return fakeapi.Edited(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "3"},
		Spec:       corev1.PodSpec{NodeName: "n1", Volumes: fakeapi.Using(claims...)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}, edits...)
}

func unbound(o *corev1.Pod) { o.Spec.NodeName, o.Status.Phase = "", corev1.PodPending }

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(o *corev1.Pod) { o.Status.Phase = phase }
}

func leaving(grace int64) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		o.DeletionTimestamp, o.DeletionGracePeriodSeconds = &metav1.Time{Time: noon}, &grace
	}
}

func index(pods ...*corev1.Pod) *pvc.Index {
	x := pvc.NewIndex()
	for _, o := range pods {
		x.See(o)
	}
	return x
}

// reading hands out the pods, and then the error.
func reading(err error, pods ...*corev1.Pod) pvc.Read {
	return func(_ string, see func(*corev1.Pod)) error {
		for _, o := range pods {
			see(o)
		}
		return err
	}
}

// statefulSet wants data-NAME-0 to data-NAME-(n-1).
func statefulSet(name string, n int32, edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	return fakeapi.Edited(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "5"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:             &n,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		},
	}, edits...)
}

func world(pods *pvc.Index, wants ...workloads.Want) pvc.World {
	return pvc.World{Pods: pods, Desire: workloads.NewDesire(ns, wants)}
}

func wantOf(object any) workloads.Want { return workloads.BuiltIn(object) }

func fakeUID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)) }

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name)}
}

func naming(claim string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: fakeapi.Using(claim)}}
}

func theNames(holders []pvc.Holder) string {
	return strings.Join(fakeapi.Each(holders, func(h pvc.Holder) string { return h.Name }), " ")
}
