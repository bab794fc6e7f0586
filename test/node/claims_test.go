//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	podProtection = "kubernetes.io/pvc-protection"
	barrier       = "protection.lockstep.dev/barrier"
	foreign       = "example.com/keep"
)

// refusal is what a kubelet says of a claim on its way out that lost P.
const refusal = "PVC is being deleted"

// A claim is deleted while its pod runs. It stays, with the data, and the pod works on to its
// last word, a new kubelet between or not; when the pod is gone, so is the claim.
func TestAClaimInUse(t *testing.T) {
	s := newScene(t)
	claim := s.newClaim("used")
	pod := s.newUser("user", claim.Name)
	s.create(pod)
	s.eventually("the pod runs", func() error { return s.running(pod.Name) })
	claim = s.mustClaim("used")
	s.remove(claim)
	s.eventually("the postponement is told", func() error {
		if told := s.events("DeletionPostponed", "used"); len(told) != 1 || !strings.Contains(told[0], "pod user") {
			return fmt.Errorf("told: %q", told)
		}
		return nil
	})
	s.awaitFinalizers(claim, podProtection, barrier)

	container := s.mustPod("user").Status.ContainerStatuses[0].ContainerID
	s.check("kill the kubelet", bed.node.killKubelet())
	s.check("start the kubelet", bed.node.startKubelet())
	s.check("a new pod runs", s.runs("witness"))
	if now := s.mustPod("user").Status.ContainerStatuses[0]; now.ContainerID != container || now.State.Running == nil {
		t.Errorf("after the kubelet started anew the container is another one: %+v", now)
	}
	s.awaitFinalizers(claim, podProtection, barrier)
	s.remove(pod)
	s.awaitGone(claim)
	if one := s.pods.life(pod.UID); one.gone == 0 {
		t.Error("the claim went before its pod")
	}
	want := []string{"born " + string(pod.UID) + " user", "ended " + string(pod.UID) + " user"}
	if have := s.livesOn(claim); !slices.Equal(have, want) {
		t.Errorf("on the disk: %q, want %q", have, want)
	}
}

// What a kubelet makes of a new pod by the finalizers of its claim. With B alone left it
// refuses: this is why there is a barrier. The pod that was bound all the same keeps B, and
// the data, until it goes.
func TestWhatAKubeletRefuses(t *testing.T) {
	s := newScene(t)
	var claims []*corev1.PersistentVolumeClaim
	for _, name := range []string{"living", "p", "b", "other"} {
		claims = append(claims, s.newClaim(name))
	}
	p, b, other := claims[1], claims[2], claims[3]
	s.check("kill the operator", bed.operator.Kill())
	running := true
	t.Cleanup(func() {
		if !running {
			return
		}
		if err := bed.operator.Start(); err != nil {
			t.Errorf("start the operator: %v", err)
		}
	})
	s.finalize(p, foreign, podProtection)
	s.finalize(other, foreign)
	holder := s.newUser("holder", p.Name)
	s.create(holder)
	s.eventually("the first user of p runs", func() error { return s.running("holder") })
	for _, claim := range []*corev1.PersistentVolumeClaim{p, b, other} {
		s.remove(claim)
	}
	s.awaitFinalizers(b, barrier)
	s.awaitFinalizers(other, foreign)
	s.awaitFinalizers(p, foreign, podProtection)

	for _, claim := range claims {
		pod := s.newUser("of-"+claim.Name, claim.Name)
		pod.Spec.NodeName = nodeName // past every scheduler
		s.create(pod)
	}
	for _, name := range []string{"of-living", "of-p"} {
		s.eventually("the kubelet starts pod "+name, func() error { return s.running(name) })
	}
	for _, name := range []string{"b", "other"} {
		s.eventually("the kubelet says why pod of-"+name+" does not start", func() error { return s.kubeletSays(name) })
		if err := s.running("of-" + name); err == nil {
			t.Errorf("pod of-%s runs on a claim that is going", name)
		}
	}
	running = false
	s.check("start the operator", bed.operator.Start())
	s.eventually("the operator tells why B stays", func() error {
		if why := s.plugin("why", "pvc/b"); !strings.Contains(why, "of-b") {
			return errors.New(why)
		}
		return nil
	})
	s.Logf("kubectl lockstep why pvc/b:\n%s", s.plugin("why", "pvc/b"))
	s.eventually("users are told by the kubelet's event", func() error {
		for _, message := range s.events("FailedMount", "of-b") {
			if strings.Contains(message, refusal) {
				s.Logf("FailedMount: %s", message)
				return nil
			}
		}
		return errors.New("they are not")
	})
	s.awaitFinalizers(b, barrier)
	s.remove(s.mustPod("of-b"))
	s.awaitGone(b)
	for _, claim := range []*corev1.PersistentVolumeClaim{p, other} {
		s.finalize(claim, s.without(claim, foreign)...)
	}
}

// newClaim makes a claim on a disk of the node, and waits until it is bound and protected.
func (s *scene) newClaim(name string) *corev1.PersistentVolumeClaim {
	s.Helper()
	s.check("make a disk", bed.addDisks(s.Context(), 1))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: diskSpec()}
	claim.Spec.VolumeName = bed.lastDisk()
	s.create(claim)
	s.eventually("claim "+name+" is bound and protected", func() (err error) {
		now, err := s.claim(name)
		if err != nil {
			return err
		}
		*claim = *now
		if now.Status.Phase != corev1.ClaimBound || !slices.Contains(now.Finalizers, barrier) || !slices.Contains(now.Finalizers, podProtection) {
			return fmt.Errorf("phase %s, finalizers %v", now.Status.Phase, now.Finalizers)
		}
		return nil
	})
	return claim
}

// newUser is a pod that runs on a claim.
func (s *scene) newUser(name, claim string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: lifeSpec("--data", "/data")}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	return pod
}

// runs waits until a pod of no claim runs: whoever starts it is at work.
func (s *scene) runs(name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: lifeSpec()}
	if err := s.Create(s.Context(), pod); err != nil {
		return err
	}
	s.eventually("pod "+name+" runs", func() error { return s.running(name) })
	return nil
}

// mustClaim reads a claim that is there.
func (s *scene) mustClaim(name string) *corev1.PersistentVolumeClaim {
	s.Helper()
	claim, err := s.claim(name)
	s.check("claim "+name, err)
	return claim
}

// awaitFinalizers waits until a claim has these finalizers and no others, in any order.
func (s *scene) awaitFinalizers(claim *corev1.PersistentVolumeClaim, want ...string) {
	s.Helper()
	slices.Sort(want)
	s.eventually(fmt.Sprintf("claim %s has finalizers %v", claim.Name, want), func() error {
		now, err := s.claim(claim.Name)
		if err != nil {
			return err
		}
		if now.UID != claim.UID {
			s.Fatalf("claim %s is another one", claim.Name)
		}
		if slices.Sort(now.Finalizers); !slices.Equal(now.Finalizers, want) {
			return fmt.Errorf("it has %v", now.Finalizers)
		}
		return nil
	})
}

// finalize sets the finalizers of a claim.
func (s *scene) finalize(claim *corev1.PersistentVolumeClaim, finalizers ...string) {
	s.Helper()
	list := `[]`
	if len(finalizers) > 0 {
		list = `["` + strings.Join(finalizers, `","`) + `"]`
	}
	err := s.Patch(s.Context(), claim.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, list)))
	s.check("set the finalizers of "+claim.Name, client.IgnoreNotFound(err))
}

// without are the finalizers of a claim but for one.
func (s *scene) without(claim *corev1.PersistentVolumeClaim, finalizer string) []string {
	s.Helper()
	return slices.DeleteFunc(s.mustClaim(claim.Name).Finalizers, func(f string) bool { return f == finalizer })
}

// awaitGone waits until an incarnation of a claim is gone.
func (s *scene) awaitGone(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.eventually("claim "+claim.Name+" is gone", func() error {
		now, err := s.claim(claim.Name)
		if apierrors.IsNotFound(err) || err == nil && now.UID != claim.UID {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it has %v", now.Finalizers))
	})
}

// kubeletSays returns nil once the kubelet's log refuses a claim.
func (s *scene) kubeletSays(claim string) error {
	log, err := os.ReadFile(bed.node.log("kubelet"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, s.namespace+"/"+claim+":") && strings.Contains(line, refusal) {
			s.Logf("kubelet: %s", strings.TrimSpace(line))
			return nil
		}
	}
	return errors.New("nothing yet")
}
