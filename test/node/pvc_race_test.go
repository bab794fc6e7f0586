//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/drill"
)

// builtIn is the name of the controller that takes P, as the controller manager knows it.
const builtIn = "persistentvolumeclaim-protection-controller"

// racing is a scene in which the built-in protection of claims runs behind a proxy.
type racing struct {
	*scene
	proxy *delay.Proxy
	log   string
}

// The built-in controller is made to take P off a claim that a pod has mounted, on a real
// kubelet, by both ways in which that is known to happen. The barrier keeps the claim until
// the pod has ended.
func TestABuiltInRace(t *testing.T) {
	for name, replay := range map[string]func(*racing) (*corev1.PersistentVolumeClaim, *corev1.Pod){
		"R3: bound between the list and the write":  (*racing).boundAfterTheList,
		"R4: judged by the list of another's claim": (*racing).judgedByAnothersList,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRacing(t)
			claim, pod := replay(r)
			r.AwaitFinalizers(claim, drill.Barrier)
			r.Check("the pod still runs", r.running(pod.Name))
			r.Until("the operator tells of it", func() bool { return len(r.events("UsedWithoutProtection", claim.Name)) != 0 })
			r.Logf("UsedWithoutProtection: %q", r.events("UsedWithoutProtection", claim.Name))
			r.Remove(pod)
			r.AwaitGone(claim)
			if r.Of(pod.UID).Died == 0 {
				t.Error("lost: the claim went before its pod")
			}
			if lives := r.livesOn(claim); !slices.Contains(lives, "ended "+string(pod.UID)+" "+pod.Name) {
				t.Errorf("the pod's last word is not on the disk: %q", lives)
			}
		})
	}
}

func newRacing(t *testing.T) *racing {
	r := &racing{scene: newScene(t)}
	controllers := func(which string) error {
		return bed.Plane.Restart(drill.ControllerManager, "--kcm-controllers", which)
	}
	r.Check("switch the built-in off", controllers("*,-"+builtIn))
	t.Cleanup(func() {
		if err := controllers("*"); err != nil {
			t.Errorf("switch the built-in on: %v", err)
		}
	})
	var err error
	r.proxy, err = delay.Start(bed.Rest)
	r.Check("start the proxy", err)
	t.Cleanup(r.proxy.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	r.Check("write the kubeconfig", r.proxy.WriteKubeconfig(kubeconfig))
	r.log = filepath.Join(t.TempDir(), "built-in.log")
	r.runBuiltIn(kubeconfig)
	r.Until("the built-in controller watches pods", func() bool { return len(r.proxy.Seen(delay.Watches("pods"))) != 0 })
	return r
}

// runBuiltIn runs the built-in controller, and no other, behind the proxy.
func (r *racing) runBuiltIn(kubeconfig string) {
	log, err := os.Create(r.log)
	r.Check("make a log", err)
	cmd := exec.Command(bed.Plane.Program, drill.ControllerManager, "--kubeconfig", kubeconfig, "--secure-port=0",
		"--leader-elect=false", "--controllers="+builtIn, "--v=4")
	cmd.Stdout, cmd.Stderr = log, log
	r.Check("start the built-in controller", cmd.Start())
	r.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
}

// boundAfterTheList has a pod bound, and started, between the controller's list of pods and
// its write.
func (r *racing) boundAfterTheList() (*corev1.PersistentVolumeClaim, *corev1.Pod) {
	claim := r.newClaim("data")
	write := r.proxy.Hold(delay.Requests, delay.WritesPVC(r.Namespace, "data"))
	defer write.Release()
	r.Remove(claim)
	r.reached("the controller is about to take P", write)
	pod := r.bound("late", "data")
	r.Eventually("the kubelet starts it: the claim is terminating, and P is there", func() error { return r.running("late") })
	return claim, pod
}

// judgedByAnothersList has claim b mounted, and then deleted, after pods were listed for
// claim a: both are judged by that list.
func (r *racing) judgedByAnothersList() (*corev1.PersistentVolumeClaim, *corev1.Pod) {
	claimA, claimB := r.newClaim("a"), r.newClaim("b")
	first := r.newUser("first", "a")
	first.Spec.Volumes = append(first.Spec.Volumes, r.newUser("", "b").Spec.Volumes...)
	first.Spec.Volumes[1].Name = "more"
	first.Spec.NodeName = nodeName
	r.Create(first)
	r.Eventually("the first pod runs", func() error { return r.running("first") })
	r.Remove(claimA)
	r.said("Keeping PVC because it is being used", r.Namespace+"/a")

	// The one worker is busy elsewhere, so that both claims come into one batch.
	other := newScene(r.T)
	busy := r.proxy.Hold(delay.Requests, delay.ListsPods(other.Namespace))
	defer busy.Release()
	elsewhere := other.newClaim("c")
	other.Remove(elsewhere)
	r.reached("the controller is busy elsewhere", busy)
	r.Remove(first)
	r.Until("the first pod is gone", func() bool { return r.Of(first.UID).Died != 0 })
	marker := other.newUser("last", "none")
	marker.Spec.SchedulerName = "none"
	other.Create(marker)
	r.said("Enqueuing PVCs for Pod", string(marker.UID))
	lag := r.proxy.Hold(delay.Streams, delay.Watches("pods"))
	defer lag.Release()
	list := r.proxy.Hold(delay.Answers, delay.ListsPods(r.Namespace))
	defer list.Release()
	busy.Release()
	r.reached("pods were listed for claim a", list)

	pod := r.bound("late", "b")
	r.Eventually("the kubelet starts it", func() error { return r.running("late") })
	r.Remove(claimB)
	other.Create(&corev1.PersistentVolumeClaim{ObjectMeta: other.Meta("last"), Spec: diskSpec()})
	r.said("Got event on PVC", other.Namespace+"/last")
	r.reached("it does not know the late pod", lag)
	list.Release()
	r.AwaitFinalizers(claimB, drill.Barrier) // before it hears of the late pod
	return claimB, pod
}

// bound creates a pod past every scheduler.
func (s *scene) bound(name, claim string) *corev1.Pod {
	pod := s.newUser(name, claim)
	pod.Spec.NodeName = nodeName
	s.Create(pod)
	return pod
}

func (r *racing) reached(what string, h *delay.Hold) {
	ctx, cancel := context.WithTimeout(r.Context(), drill.Patience)
	defer cancel()
	_, err := h.Reached(ctx)
	r.Check(what, err)
	r.tell("%s", what)
}

// said waits until the built-in controller's log has a line with these words.
func (r *racing) said(words ...string) {
	r.Eventually(fmt.Sprintf("the built-in says %q", words), func() error {
		log, err := os.ReadFile(r.log)
		for line := range strings.Lines(string(log)) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}
		return errors.Join(err, errors.New("it did not"))
	})
}
