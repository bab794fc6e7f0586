package scheduling_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kube-scheduler/framework"

	"lockstep.dev/lockstep/scheduling"
)

func scratch(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	return pod
}

func ownedBy(uid types.UID) func(*corev1.PersistentVolumeClaim) {
	yes := true
	return func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: uid, Controller: &yes}}
	}
}

func TestPreFilterTreatsATerminatingClaimAsAMissingOne(t *testing.T) {
	tests := []struct {
		name   string
		pod    *corev1.Pod
		claims []*corev1.PersistentVolumeClaim
		code   framework.Code
		says   string
	}{
		{"no claims", newPod("web"), nil, framework.Skip, ""},
		{"there", newPod("web", "data"), []*corev1.PersistentVolumeClaim{newClaim("data")}, framework.Success, ""},
		{"missing", newPod("web", "data"), nil, framework.UnschedulableAndUnresolvable, `persistentvolumeclaim "data" not found`},
		{"on its way out", newPod("web", "data"), []*corev1.PersistentVolumeClaim{newClaim("data", dying)},
			framework.UnschedulableAndUnresolvable, `persistentvolumeclaim "data" is being deleted`},
		{"one of two", newPod("web", "data", "logs"), []*corev1.PersistentVolumeClaim{newClaim("data"), newClaim("logs", dying)},
			framework.UnschedulableAndUnresolvable, `persistentvolumeclaim "logs" is being deleted`},
		{"ephemeral, not made yet", scratch(newPod("web")), nil,
			framework.UnschedulableAndUnresolvable, `waiting for ephemeral volume controller to create the persistentvolumeclaim "web-scratch"`},
		{"ephemeral, of this pod", scratch(newPod("web")), []*corev1.PersistentVolumeClaim{newClaim("web-scratch", ownedBy("uid-web"))}, framework.Success, ""},
		{"ephemeral, of one before", scratch(newPod("web")), []*corev1.PersistentVolumeClaim{newClaim("web-scratch", ownedBy("uid-old"))},
			framework.UnschedulableAndUnresolvable, `PVC team/web-scratch was not created for pod team/web (pod is not owner)`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, "")
			s.cached(tt.claims...)
			_, status := s.filter(tt.pod)
			if status.Code() != tt.code || status.Message() != tt.says {
				t.Errorf("got %v %q, want %v %q", status.Code(), status.Message(), tt.code, tt.says)
			}
			if len(s.client.Actions()) > 0 {
				t.Errorf("asked the API server: %v", s.client.Actions())
			}
		})
	}
}

func TestHintsMatchThePodsOwnClaims(t *testing.T) {
	s := newStage(t, "")
	events, err := s.plugin.EventsToRegister(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatalf("got %v, %v", events, err)
	}
	event := events[0].Event
	if event.Resource != framework.PersistentVolumeClaim || event.ActionType != framework.Add|framework.Update|framework.Delete {
		t.Errorf("registered for %+v", event)
	}
	elsewhere := newClaim("data", func(c *corev1.PersistentVolumeClaim) { c.Namespace = "other" })
	pod := scratch(newPod("web", "data"))
	tests := []struct {
		name          string
		before, after any
		want          framework.QueueingHint
		wrong         bool
	}{
		{"comes", nil, newClaim("data"), framework.Queue, false},
		{"comes, ephemeral", nil, newClaim("web-scratch"), framework.Queue, false},
		{"comes, another's", nil, newClaim("logs"), framework.QueueSkip, false},
		{"comes, elsewhere", nil, elsewhere, framework.QueueSkip, false},
		{"comes, on its way out", nil, newClaim("data", dying), framework.QueueSkip, false},
		{"changes", newClaim("data"), newClaim("data"), framework.Queue, false},
		{"changes, another's", newClaim("logs"), newClaim("logs"), framework.QueueSkip, false},
		{"begins to go", newClaim("data"), newClaim("data", dying), framework.QueueSkip, false},
		{"goes", newClaim("data", dying), nil, framework.Queue, false},
		{"goes, another's", newClaim("logs"), nil, framework.QueueSkip, false},
		{"goes unseen", cache.DeletedFinalStateUnknown{}, nil, framework.Queue, true},
	}
	for _, tt := range tests {
		hint, err := events[0].QueueingHintFn(klog.Background(), pod, tt.before, tt.after)
		if hint != tt.want || (err != nil) != tt.wrong {
			t.Errorf("%s: got %v, %v, want %v", tt.name, hint, err, tt.want)
		}
	}
}

// TestPodsWithLikeVolumesShareASignature: without one the scheduler gives up
// batching for every pod.
func TestPodsWithLikeVolumesShareASignature(t *testing.T) {
	s := newStage(t, "")
	if fragments, status := s.plugin.SignPod(t.Context(), newPod("web", "data")); !status.IsSuccess() || len(fragments) != 1 {
		t.Errorf("got %v, %v", fragments, status)
	}
}

func TestArgumentsAreReadStrictly(t *testing.T) {
	tests := []struct{ arguments, wrong string }{
		{`{}`, ""},
		{`{"mode":"off","exemptNamespaces":["a","b"]}`, ""},
		{`{"mode":"barier"}`, `mode "barier": give off, observe, barrier, hold or strict`},
		{`{"mode":""}`, `mode "": give off, observe, barrier, hold or strict`},
		{`{"Mode":"off"}`, `unknown field "Mode"`},
		{`{"modes":"off"}`, `unknown field "modes"`},
		{`{"mode":"off","mode":"hold"}`, `duplicate field "mode"`},
		{`{"exemptNamespaces":["Kube_System"]}`, `exemptNamespaces: "Kube_System" is no name of a namespace`},
		{`[]`, `cannot unmarshal array`},
	}
	for _, tt := range tests {
		_, err := scheduling.New(t.Context(), &runtime.Unknown{Raw: []byte(tt.arguments)}, newStage(t, ""))
		switch {
		case tt.wrong == "" && err != nil:
			t.Errorf("%s: %v", tt.arguments, err)
		case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong) || !strings.Contains(err.Error(), scheduling.Name)):
			t.Errorf("%s: got %v, want %s", tt.arguments, err, tt.wrong)
		}
	}
	if _, err := scheduling.New(t.Context(), &runtime.Unknown{Raw: []byte(`mode: off`), ContentType: "application/yaml"}, newStage(t, "")); err == nil {
		t.Error("arguments that are not JSON are read as if they were")
	}
}
