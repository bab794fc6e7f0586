package pvc_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

// A workload may be older than the claim that was made for it again.
func TestAClaimIsNotHeldLongerThanItIsThere(t *testing.T) {
	db := pvc.OfStatefulSet(statefulSet("db", 1))
	db.Since = noon.Add(-time.Hour)
	c := caseOf(claim("data-db-0"), pvc.Barrier, nil, db)
	c.Claim.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	if since := pvc.Why(c).Since; since == nil || !since.Equal(noon.Add(-time.Minute)) {
		t.Errorf("held since %v", since)
	}
	c.Claim.CreationTimestamp = metav1.NewTime(noon.Add(-2 * time.Hour))
	if since := pvc.Why(c).Since; since == nil || !since.Equal(db.Since) {
		t.Errorf("held since %v", since)
	}
}

// What a person reads first names workloads, and not each of their pods.
func TestASummaryNamesWhoMakesThePods(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web", UID: "uid-web"}}
	web.Spec.Template.Spec.Volumes = []corev1.Volume{volume("data")}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-1", UID: "uid-web-1"}}
	set.Spec.Template.Spec.Volumes = web.Spec.Template.Spec.Volumes
	controlledBy("Deployment", "uid-web")(set)
	o := pod("web-1-x", []string{"data"})
	controlledBy("ReplicaSet", "uid-web-1")(o)
	c := caseOf(claim("data"), pvc.Barrier, []*corev1.Pod{o}, pvc.OfReplicaSet(set), pvc.OfDeployment(web))
	c.World.Links = map[types.UID]pvc.Link{o.UID: {Controller: "uid-web-1"}}
	e := pvc.Why(c)
	if want := "is in use by Deployment/web: a DELETE would be accepted, and the claim would stay until Pod/web-1-x lets go"; e.Summary != want {
		t.Errorf("got %q", e.Summary)
	}
	if h := e.Holders[0]; h.Name != "Deployment/web" || h.Proof != "spec.template.spec.volumes[v-data]" {
		t.Errorf("got %+v", h)
	}
}

// A claim that nobody holds goes at once, or somebody does not do what is his.
func TestAClaimThatOughtToHaveGoneNamesWhoIsLate(t *testing.T) {
	both, ours := []string{p, b}, []string{b}
	for _, tt := range []struct {
		name       string
		finalizers []string
		after      time.Duration
		alone      bool
		summary    string
		do         string
	}{
		{"in time", both, time.Second, false, "it should go any moment",
			"wait some seconds; if it stays, see whether kube-controller-manager runs: it takes " + p + " away"},
		{"the built-in is late", both, 2 * time.Minute, false, "persistentvolumeclaim-protection-controller ought to have taken " + p + " away",
			"see whether kube-controller-manager runs: it takes " + p + " away"},
		{"we are late in its place", both, 2 * time.Minute, true, "lockstep ought to have taken " + p + " away",
			"see whether the operator of Lockstep runs: it takes " + p + " away; where it is gone for good, lockstep uninstall does"},
		{"we are late", ours, 2 * time.Minute, false, "lockstep ought to have taken " + b + " away",
			"see whether the operator of Lockstep runs: it takes " + b + " away; where it is gone for good, lockstep uninstall does"},
	} {
		c := caseOf(claim("data", dying, finalizers(tt.finalizers...)), pvc.Barrier, nil)
		c.Now, c.Settings.Alone = noon.Add(tt.after), tt.alone
		e := pvc.Why(c)
		if want := "is being deleted, and nobody is seen to hold it: " + tt.summary; e.Summary != want {
			t.Errorf("%s: got %q", tt.name, e.Summary)
		}
		if len(e.Actions) != 1 || e.Actions[0].Do != tt.do {
			t.Errorf("%s: got %+v", tt.name, e.Actions)
		}
	}
}
