package lease

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"lockstep.dev/lockstep/test/expect"
)

const (
	name   = "x"
	theirs = "lws-controller-manager-5d4f8c7b9-x2k4m_0b6f"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func held(namespace, holder string, ago time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now.Add(-ago)},
		},
	}
}

func TestHolderOf(t *testing.T) {
	for name, tt := range map[string]struct {
		lease *coordinationv1.Lease
		held  bool
	}{
		"renewed just now":    {held("a", theirs, time.Second), true},
		"not renewed in time": {held("a", theirs, 16*time.Second), false},
		"given back":          {held("a", "", time.Second), false},
		"never taken":         {&coordinationv1.Lease{}, false},
	} {
		_, held := HolderOf(tt.lease, now)
		expect.Equalf(t, tt.held, held, "%s", name)
	}
}

func TestHolders(t *testing.T) {
	client := fake.NewClientset(held("b", theirs, 0), held("a", Identity("host"), 0), held("c", theirs, time.Hour))
	all, err := Holders(t.Context(), client, name, "b", now)
	if err != nil || len(all) != 2 || all[0].Namespace != "a" || !all[0].Ours() || all[1] != (Holder{"b", theirs}) {
		t.Errorf("got %v, %v", all, err)
	}
	client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", nil)
	})
	own, err := Holders(t.Context(), client, name, "b", now)
	diff := cmp.Diff([]Holder{{"b", theirs}}, own)
	expect.That(t, diff == "" && err == nil, "without permission for all namespaces: %v (-want +got)\n%s", err, diff)
	if none, err := Holders(t.Context(), client, name, "d", now); err != nil || len(none) != 0 {
		t.Errorf("without a lease: %v, %v", none, err)
	}
}

func TestHolderIdentity(t *testing.T) {
	for _, tt := range []struct {
		identity   string
		ours       bool
		deployment string
	}{
		{theirs, false, "lws-controller-manager"},
		{Identity("lws-controller-manager-5d4f8c7b9-x2k4m"), true, "lws-controller-manager"},
		{Identity("laptop.local"), true, ""},
		{"laptop_0b6f", false, ""},
	} {
		h := Holder{Namespace: "a", Identity: tt.identity}
		expect.Equalf(t, tt.ours, h.Ours(), "%s: ours", tt.identity)
		expect.Equalf(t, tt.deployment, h.Deployment(), "%s: Deployment", tt.identity)
	}
	want := "kubectl --namespace a scale deployment lws-controller-manager --replicas=0"
	expect.Equal(t, want, (Holder{"a", theirs}).Stop())
}
