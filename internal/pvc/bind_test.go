package pvc_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestUnusable(t *testing.T) {
	lost := func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }
	own := claim("web-scratch")
	controlledBy("Pod", "uid-web")(own)
	tests := []struct {
		name   string
		pod    *corev1.Pod
		claims pvc.Claims
		want   string
	}{
		{"there", pod("web", []string{"data"}), pvc.Claims{"data": claim("data")}, ""},
		{"no claims", pod("web", nil), nil, ""},
		{"missing", pod("web", []string{"data"}), nil, `persistentvolumeclaim "data" not found`},
		{"on its way out", pod("web", []string{"data"}), pvc.Claims{"data": claim("data", dying)}, `persistentvolumeclaim "data" is being deleted`},
		{"lost, and on its way out", pod("web", []string{"data"}), pvc.Claims{"data": claim("data", dying, lost)}, `persistentvolumeclaim "data" bound to non-existent persistentvolume "pv-data"`},
		{"the second one", pod("web", []string{"data", "logs"}), pvc.Claims{"data": claim("data"), "logs": claim("logs", dying)}, `persistentvolumeclaim "logs" is being deleted`},
		{"ephemeral", pod("web", nil, ephemeral("scratch")), pvc.Claims{"web-scratch": own}, ""},
		{"ephemeral, missing", pod("web", nil, ephemeral("scratch")), nil, `waiting for ephemeral volume controller to create the persistentvolumeclaim "web-scratch"`},
		{"ephemeral, another's", pod("web", nil, ephemeral("scratch")), pvc.Claims{"web-scratch": claim("web-scratch")}, `PVC ns/web-scratch was not created for pod ns/web (pod is not owner)`},
	}
	for _, tt := range tests {
		if got := pvc.Unusable(tt.pod, tt.claims); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestBindWritesTheUseOntoWhatWasRead(t *testing.T) {
	web := pod("web", []string{"data", "logs", "data"})
	data, logs := claim("data", annotated(pvc.UsersAnnotation, "a=1")), claim("logs", annotated(pvc.UsersAnnotation, "web=uid-web"))
	writes, err := pvc.Bind(web, pvc.Claims{"data": data, "logs": logs})
	if err != nil || len(writes) != 1 {
		t.Fatalf("got %v, %v; want one write: the other claim knows the pod", writes, err)
	}
	w := writes[0]
	if w.Value() != "a=1,web=uid-web" || w.Target().UID != data.UID || w.Target().ResourceVersion != data.ResourceVersion {
		t.Errorf("writes %q onto %+v", w.Value(), w.Target())
	}
	for name, refused := range map[string]*corev1.PersistentVolumeClaim{
		"is being deleted": claim("data", dying), "not \"name=uid\"": claim("data", annotated(pvc.UsersAnnotation, "?")),
	} {
		if _, err := pvc.Bind(web, pvc.Claims{"data": refused, "logs": logs}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

func TestForgetTakesOffWhatIsGone(t *testing.T) {
	living := claim("data", annotated(pvc.UsersAnnotation, "gone=1,web=uid-web"))
	current := claim("logs", annotated(pvc.UsersAnnotation, "web=uid-web"))
	unread := claim("unread", annotated(pvc.UsersAnnotation, "?"))
	batch := pvc.Settings{}.Take(ns, []*corev1.PersistentVolumeClaim{living, current, unread, claim("none")})
	web := pod("web", nil, unbound)
	writes := batch.Look(reading(nil, web)).Forget()
	if len(writes) != 1 || writes[0].Value() != "web=uid-web" || writes[0].Target().UID != living.UID {
		t.Errorf("got %+v", writes)
	}
	if writes := batch.Look(reading(errors.New("lost"), web)).Forget(); len(writes) > 0 {
		t.Errorf("half a reading takes off %+v", writes)
	}
	if releases, kept := batch.Look(reading(nil, web)).Judge(); len(releases)+len(kept) > 0 {
		t.Errorf("living claims are judged: %v %v", releases, kept)
	}
}
