package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/history"
)

const (
	stockScheduler = corev1.DefaultSchedulerName
	ourScheduler   = "lockstep-scheduler"
)

// schedules reports whether a scheduler wrote to a PVC or bound a pod.
func schedules(r drill.Request) bool {
	return strings.HasPrefix(r.Agent, "kube-scheduler/") &&
		(r.Resource == "persistentvolumeclaims" || r.Resource == "pods" && r.Subresource == "binding")
}

// boundClaim creates a PVC and waits for its volume. A foreign finalizer keeps it after a deletion.
func (s *scene) boundClaim(name string) *corev1.PersistentVolumeClaim {
	s.classClaim(name, "local", foreign)
	return s.AwaitPVC(name, "is bound", func(claim *corev1.PersistentVolumeClaim) error {
		return drill.Lacking("phase", corev1.ClaimBound, claim.Status.Phase)
	})
}

// recordOf returns the use record of a PVC.
func (s *scene) recordOf(name string) string {
	return s.PVC(name).Annotations[pvc.UsersAnnotation]
}

// awaitScheduled waits until a pod has a node.
func (s *scene) awaitScheduled(name string) *corev1.Pod {
	return drill.Await(s.Scene, name, "is scheduled", func(pod *corev1.Pod) error {
		if pod.Spec.NodeName == "" {
			return errors.New(refusal(pod))
		}
		return nil
	})
}

// awaitRefused waits until a pod has a reason for its missing node.
func (s *scene) awaitRefused(name, why string) {
	drill.Await(s.Scene, name, "is refused: "+why, func(pod *corev1.Pod) error {
		if pod.Spec.NodeName != "" {
			s.Fatalf("pod %s is bound to %s", name, pod.Spec.NodeName)
		}
		if text := refusal(pod); !strings.Contains(text, why) {
			return errors.New(text)
		}
		return nil
	})
}

// refusal returns the reason and message of PodScheduled.
func refusal(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return "nothing"
}

// TestPodsWaitForClaimsOnTheirWayOut: a pod with a terminating PVC waits, names it, and is scheduled
// with the next PVC.
func TestPodsWaitForClaimsOnTheirWayOut(t *testing.T) {
	s := asideScene(t)
	claim := s.boundClaim("data")
	s.Remove(claim)
	s.user("web", []string{"data"}, by(ourScheduler))
	s.awaitRefused("web", `persistentvolumeclaim "data" is being deleted`)
	s.vanish(claim)
	s.awaitRefused("web", `persistentvolumeclaim "data" not found`)
	s.classClaim("data", "local")
	s.checkRecorded(s.awaitScheduled("web"), "data")
}

// checkRecorded checks that PVCs had the use record of a pod before it was bound.
func (s *scene) checkRecorded(pod *corev1.Pod, claims ...string) {
	s.WantRecorded(pod, claims...)
	s.Check("read the audit log", bed.Audit.Sync())
	wrote := bed.Audit.Kept(s.Audited, func(r drill.Request) bool { return schedules(r) && r.Namespace == s.Namespace && r.Code < 300 })
	bound := slices.IndexFunc(wrote, func(r drill.Request) bool { return r.Resource == "pods" && r.Name == pod.Name })
	if bound < 0 {
		s.Fatalf("the scheduler bound nothing: %v", wrote)
	}
	for _, name := range claims {
		on := slices.IndexFunc(wrote, func(r drill.Request) bool {
			return r.Resource == "persistentvolumeclaims" && r.Verb == "patch" && r.Name == name
		})
		if on < 0 || on > bound || wrote[on].Done.After(wrote[bound].Begun) {
			s.Errorf("claim %s was not written on before pod %s was bound: %v", name, pod.Name, wrote)
		}
	}
}

// TestNoPodIsBoundToAClaimThatWentAfterANodeWasChosen deletes a PVC while the scheduler waits for the
// volume of another one. The stock scheduler binds the pod all the same.
func TestNoPodIsBoundToAClaimThatWentAfterANodeWasChosen(t *testing.T) {
	s := asideScene(t)
	slow := s.slowClass()
	for _, scheduler := range []string{stockScheduler, ourScheduler} {
		web, data, late := scheduler, "data-"+scheduler, "late-"+scheduler
		claim := s.boundClaim(data)
		s.classClaim(late, slow)
		s.user(web, []string{data, late}, by(scheduler))
		waiting := s.AwaitPVC(late, "waits for a volume at a node", func(c *corev1.PersistentVolumeClaim) error {
			if c.Annotations["volume.kubernetes.io/selected-node"] == "" {
				return drill.ErrStill
			}
			return nil
		})
		s.Remove(claim)
		s.provision(waiting)
		if scheduler == stockScheduler {
			s.awaitScheduled(web) // or the drill shows nothing
			s.let(claim)
			continue
		}
		s.awaitRefused(web, fmt.Sprintf("persistentvolumeclaim %q is being deleted", data))
		s.Check("the pod was not bound", drill.Lacking("use record of claim "+late, "", s.recordOf(late)))
		s.vanish(claim)
		s.classClaim(data, "local")
		s.checkRecorded(s.awaitScheduled(web), data, late)
	}
}

// slowClass creates a StorageClass whose volumes the drill provides.
func (s *scene) slowClass() string {
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "slow-" + s.Namespace},
		Provisioner:       "drill.lockstep.dev/by-hand",
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	s.Lend(class)
	return class.Name
}

// provision creates the volume of a PVC.
func (s *scene) provision(claim *corev1.PersistentVolumeClaim) {
	s.Create(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Namespace + "-" + claim.Name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               claim.Spec.Resources.Requests,
			AccessModes:            claim.Spec.AccessModes,
			StorageClassName:       *claim.Spec.StorageClassName,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	})
}

// strictScene is a scene with a history in the API server's order.
type strictScene struct {
	*scene
	history *history.History
}

// newStrictScene creates a scene in mode strict.
func newStrictScene(t *testing.T) *strictScene {
	t.Helper()
	direct, err := kubernetes.NewForConfig(bed.Rest)
	if err != nil {
		t.Fatal(err)
	}
	told, err := history.Begin(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	s := &strictScene{newScene(t), told}
	s.SetMode("strict")
	s.Eventually("a pod that names its node is refused, and another is gated", func() error {
		named := s.newUser("probe", []string{"none"})
		named.Spec.NodeName = "nowhere"
		if err := s.Client.Create(s.Context(), named, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it is not refused: %w", err)
		}
		pod := s.newUser("probe", []string{"none"})
		err := s.Client.Create(s.Context(), pod, client.DryRunAll)
		return errors.Join(err, drill.Lacking("gated", true, pvc.Gated(pod)))
	})
	return s
}

// checkLifted checks that PVCs had the use record of a pod before its gate was lifted, and that it was
// bound after that.
func (s *strictScene) checkLifted(pod *corev1.Pod, claims ...string) {
	s.WantRecorded(pod, claims...)
	var told []history.Version
	s.Eventually("it is told how pod "+pod.Name+" came to be bound", func() (err error) {
		told, err = s.history.Told(s.Namespace)
		gated, bound := false, false
		for _, v := range told {
			if v.Pod != nil && v.Pod.UID == pod.UID {
				gated, bound = gated || pvc.Gated(v.Pod), bound || v.Pod.Spec.NodeName != ""
			}
		}
		return errors.Join(err, drill.Lacking("gated", true, gated), drill.Lacking("bound", true, bound))
	})
	s.Check("how it came", history.Judge(told, true))
}

// TestStrictWritesPodsOnTheirClaimsBeforeTheyAreScheduled, with any scheduler, and keeps a pod gated
// that has to wait.
func TestStrictWritesPodsOnTheirClaimsBeforeTheyAreScheduled(t *testing.T) {
	aside(t)
	s := newStrictScene(t)
	s.boundClaim("data")
	claim := s.boundClaim("logs")
	s.Create(s.newUser("web", []string{"data", "logs"}))
	s.checkLifted(s.awaitScheduled("web"), "data", "logs")
	s.Create(s.newUser("none", nil))
	s.awaitScheduled("none")

	s.Remove(s.Pod("web"))
	s.Eventually("nobody stands on the claims", func() error {
		return errors.Join(drill.Lacking("use record", "", s.recordOf("logs")), drill.Lacking("use record", "", s.recordOf("data")))
	})

	s.Check("release claim logs", s.Client.Patch(s.Context(), claim.DeepCopy(), drill.Released(claim))) // the hold outlives the pod by its grace
	s.Remove(claim)
	s.Create(s.newUser("late", []string{"data", "logs"}))
	s.AwaitEvent("late", "ClaimUnusable", "logs")
	s.Check("pod late waits", s.IsGated("late"))
	s.Check("pod late waits for logs", drill.Lacking("use record", "", s.recordOf("data")))
	s.vanish(claim)
	s.AwaitEvent("late", "AwaitingClaim", "logs")
	s.classClaim("logs", "local")
	s.checkLifted(s.awaitScheduled("late"), "data", "logs")
}

// TestStrictWaitsForTheOperator: pods stay gated while no operator runs.
func TestStrictWaitsForTheOperator(t *testing.T) {
	s := newStrictScene(t)
	s.boundClaim("data")
	s.Check("kill the operator", bed.Operator.Kill())
	s.Create(s.newUser("web", []string{"data"}))
	s.awaitRefused("web", "SchedulingGated")
	s.Check("nobody wrote on the claim", drill.Lacking("use record", "", s.recordOf("data")))
	s.Check("start the operator", bed.Operator.Start())
	s.checkLifted(s.awaitScheduled("web"), "data")
}
