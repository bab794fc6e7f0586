package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/install"
)

// saysUnused writes the condition as the operator does.
func (c *cluster) saysUnused(claim *corev1.PersistentVolumeClaim) {
	c.t.Helper()
	c.read(claim, claim.Namespace, claim.Name)
	_, err := apply.New(c.Client, c.Client).Do(c.t.Context(), action.Condition{
		Claim: identity.RefOf(identity.KindPersistentVolumeClaim, claim),
		Is:    unusedCondition(corev1.ConditionTrue, "NoPodsUsingPVC"),
	})
	c.must(err)
}

func unusedCondition(status corev1.ConditionStatus, reason string) corev1.PersistentVolumeClaimCondition {
	return corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: status, Reason: reason, Message: "said", LastTransitionTime: metav1.NewTime(time.Now()),
	}
}

// builtInSays puts conditions of the built-in controller on a claim, which replace those of
// their type.
func (c *cluster) builtInSays(claim *corev1.PersistentVolumeClaim, conditions ...corev1.PersistentVolumeClaimCondition) {
	c.t.Helper()
	c.read(claim, claim.Namespace, claim.Name)
	claim.Status.Conditions = conditions
	c.must(c.Status().Update(c.t.Context(), claim, client.FieldOwner("kube-controller-manager")))
}

// Nobody would keep true any more what the operator said; what the built-in controller
// says, or has taken over, it keeps true itself.
func TestUninstallTakesOffWhatOnlyItKeptTrue(t *testing.T) {
	c := newClusterWith(t, map[string]string{"disable-admission-plugins": "StorageObjectInUseProtection"})
	c.install(func(o *install.Options) {
		configured("protection: {alone: true}")(o)
		o.ProtectOnly = true
	})
	resizing := corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue}
	ours, agreed, overruled, theirs := c.claimIn("default", "ours"), c.claimIn("default", "agreed"), c.claimIn("default", "overruled"), c.claimIn("default", "theirs")
	c.builtInSays(ours, resizing)
	for _, claim := range []*corev1.PersistentVolumeClaim{ours, agreed, overruled} {
		c.saysUnused(claim)
	}
	c.builtInSays(overruled, unusedCondition(corev1.ConditionFalse, "PodUsingPVC"))
	c.builtInSays(theirs, unusedCondition(corev1.ConditionTrue, "NoPodsUsingPVC"))

	out, err := c.uninstall(nil)
	if err != nil || !strings.Contains(out, "condition Unused taken off 2 claims") {
		t.Fatalf("%v\n%s", err, out)
	}
	c.bare()
	for claim, want := range map[*corev1.PersistentVolumeClaim][]string{
		ours: {"Resizing True"}, agreed: nil, overruled: {"Unused False"}, theirs: {"Unused True"},
	} {
		c.read(claim, claim.Namespace, claim.Name)
		var got []string
		for _, condition := range claim.Status.Conditions {
			got = append(got, string(condition.Type)+" "+string(condition.Status))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("claim %s: (-want +got)\n%s", claim.Name, diff)
		}
	}
	if out, err = c.uninstall(nil); err != nil || out != "nothing to remove\n" {
		t.Errorf("once more: %v\n%s", err, out)
	}
}
