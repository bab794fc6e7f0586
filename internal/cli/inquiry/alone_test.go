package inquiry_test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Where Lockstep protects alone, nobody is sent to look after a controller that is off.
func TestWhoseTheBuiltInFinalizerIs(t *testing.T) {
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "pod-protection.protection.lockstep.dev"}}
	const builtIn = "persistentvolumeclaim-protection-controller"
	for name, tt := range map[string]struct {
		objects   []client.Object
		forbidden []string
		owner     string
	}{
		"beside the built-in": {owner: builtIn},
		"alone":               {objects: []client.Object{policy}, owner: "lockstep"},
		"it may not be asked": {objects: []client.Object{policy}, forbidden: []string{"MutatingAdmissionPolicy"}, owner: builtIn},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, append(tt.objects, space(nil), claim("data"), bound("web", "data"))...)
			c.forbidden = tt.forbidden
			e := explain(t, c, claim("data"))[0]
			if len(e.Finalizers) != 1 || e.Finalizers[0].Owner != tt.owner {
				t.Errorf("finalizers %+v, want that of %s", e.Finalizers, tt.owner)
			}
			if len(e.Unread) > 0 {
				t.Errorf("unread: %+v", e.Unread)
			}
		})
	}
}
