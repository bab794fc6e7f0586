package pvc_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

func ephemeral(name string) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	}
}

func TestWhichPodHolds(t *testing.T) {
	data := claim("data")
	of := func(pod string) *corev1.PersistentVolumeClaim {
		c := claim("web-scratch")
		controlledBy("Pod", types.UID("uid-"+pod))(c)
		return c
	}
	unknown := func(o *corev1.Pod) { o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{Name: "new"}) }
	tests := []struct {
		name  string
		pod   *corev1.Pod
		claim *corev1.PersistentVolumeClaim
		holds bool
		uses  bool
	}{
		{"bound and running", pod("web", []string{"data"}), data, true, true},
		{"bound and finished", pod("web", []string{"data"}, phase(corev1.PodSucceeded)), data, true, true},
		{"bound and failed", pod("web", []string{"data"}, phase(corev1.PodFailed)), data, true, true},
		{"being deleted", pod("web", []string{"data"}, leaving(30)), data, true, true},
		{"force-deleted, and still there", pod("web", []string{"data"}, leaving(0)), data, true, true},
		{"on the host's network", pod("web", []string{"data"}, func(o *corev1.Pod) { o.Spec.HostNetwork = true }), data, true, true},
		{"not bound", pod("web", []string{"data"}, unbound), data, false, true},
		{"another claim", pod("web", []string{"logs"}), data, false, false},
		{"no claim", pod("web", nil), data, false, false},
		{"ephemeral, the claim is the pod's", pod("web", nil, ephemeral("scratch")), of("web"), true, true},
		{"ephemeral, the claim is another pod's", pod("web", nil, ephemeral("scratch")), of("other"), false, false},
		{"ephemeral, the claim is nobody's", pod("web", nil, ephemeral("scratch")), claim("web-scratch"), false, false},
		{"ephemeral, the pod is being deleted", pod("web", nil, ephemeral("scratch"), leaving(30)), of("web"), true, true},
		{"ephemeral, the pod is shut down", pod("web", nil, ephemeral("scratch"), leaving(0)), of("web"), false, true},
		{"a volume of a kind unknown here", pod("web", nil, unknown), data, true, true},
		{"the same, not bound", pod("web", nil, unknown, unbound), data, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := index(tt.pod)
			if got := len(x.Holding(tt.claim)) > 0; got != tt.holds {
				t.Errorf("holds: got %t, want %t", got, tt.holds)
			}
			if got := len(x.Uses(tt.claim)) > 0; got != tt.uses {
				t.Errorf("uses: got %t, want %t", got, tt.uses)
			}
		})
	}
}

func TestRecord(t *testing.T) {
	var r pvc.Record
	for _, name := range []string{"b", "a", "b"} {
		longer, err := r.With(pvc.Recorded{Name: name, UID: "1"})
		if err != nil {
			t.Fatal(err)
		}
		r = longer
	}
	if got, want := r.String(), "a=1,b=1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	read, err := pvc.ParseRecord(r.String())
	if err != nil || read.String() != r.String() {
		t.Errorf("read back %q, %v", read, err)
	}
	for _, wrong := range []string{"a", "a=", "=1", "a=1,", ",", "a=1,,b=1"} {
		if _, err := pvc.ParseRecord(wrong); err == nil {
			t.Errorf("%q is read as a record", wrong)
		}
	}
	for i := 0; err == nil; i++ {
		r, err = r.With(pvc.Recorded{Name: "pod-with-a-rather-long-name-in-a-rather-large-set", UID: fakeUID(i)})
		if i > 10_000 {
			t.Fatal("the record grows without bound")
		}
	}
}
