package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/history"
)

// strictScene is a scene of which everything is told in the API server's order.
type strictScene struct {
	*scene
	history *history.History
}

// newStrictScene is a scene in mode strict, once the policies act on it.
func newStrictScene(t *testing.T) *strictScene {
	t.Helper()
	direct, err := kubernetes.NewForConfig(bed.rest)
	if err != nil {
		t.Fatal(err)
	}
	told, err := history.Begin(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	s := &strictScene{newScene(t), told}
	bed.hasSet(s.namespace) // the operator may write here
	s.applyPolicies("../../config/protection/strict.yaml")
	namespace := &corev1.Namespace{}
	namespace.Name = s.namespace
	s.patch(namespace, fmt.Sprintf(`{"metadata":{"labels":{%q:"strict"}}}`, pvc.ModeKey))
	s.check("read the namespace", s.client.Get(s.Context(), client.ObjectKeyFromObject(namespace), namespace))
	t.Cleanup(func() { // it goes with its claims, before its scene is struck
		if err := s.client.Patch(context.Background(), namespace, released(namespace)); err != nil {
			t.Errorf("release namespace %s: %v", s.namespace, err)
		}
	})
	s.eventually("a pod that names its node is refused, and another is gated", func() error {
		named := newUser(s.namespace, "probe", []string{"none"})
		named.Spec.NodeName = "nowhere"
		if err := s.client.Create(s.Context(), named, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it is not refused: %w", err)
		}
		pod := newUser(s.namespace, "probe", []string{"none"})
		err := s.client.Create(s.Context(), pod, client.DryRunAll)
		return errors.Join(err, lacking("gated", true, pvc.Gated(pod)))
	})
	return s
}

// released is the patch that lets the deletion of a claim, or of a namespace with held
// claims, through.
func released(object client.Object) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, pvc.ReleaseAnnotation, object.GetUID()))
}

// newUser is a pod that uses claims and leaves its node to the scheduler.
func newUser(namespace, name string, claims []string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = namespace, name
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: imageA}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// applyPolicies creates what is in a file and not there yet.
func (s *scene) applyPolicies(path string) {
	s.Helper()
	file, err := os.Open(path)
	s.check("open the policies", err)
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return
		} else if err == nil {
			err = s.client.Create(s.Context(), o)
			if apierrors.IsAlreadyExists(err) {
				continue
			}
			s.check("create "+o.GetName(), err)
		} else {
			s.Fatalf("%s: %v", path, err)
		}
	}
}

// isGated tells what keeps a pod from being gated.
func (s *scene) isGated(name string) error {
	pod, err := s.pod(name)
	if err == nil && (!pvc.Gated(pod) || pod.Spec.NodeName != "") {
		err = fmt.Errorf("gates %v, node %q", pod.Spec.SchedulingGates, pod.Spec.NodeName)
	}
	return err
}

// awaitToldPod waits until an event tells a pod something.
func (s *scene) awaitToldPod(name, reason, claim string) {
	s.Helper()
	s.eventually(reason+" is told of pod "+name, func() error {
		for _, e := range live[*eventsv1.Event](s.recorder) {
			if e.Regarding.Name == name && e.Reason == reason && strings.Contains(e.Note, claim) {
				return nil
			}
		}
		return errors.New("it is not")
	})
}

// checkLifted checks that a pod was written on its claims, then let to the scheduler,
// then bound: by the order in which the API server did so. Claims are written on for
// other reasons as well, and its clock is too coarse to tell.
func (s *strictScene) checkLifted(pod *corev1.Pod, claims ...string) {
	s.Helper()
	for _, name := range claims {
		s.check("claim "+name, lacking("use record", pod.Name+"="+string(pod.UID), s.recordOf(name)))
	}
	var told []history.Version
	s.eventually("it is told how pod "+pod.Name+" came to be bound", func() (err error) {
		told, err = s.history.Told(s.namespace)
		gated, bound := false, false
		for _, v := range told {
			if v.Pod != nil && v.Pod.UID == pod.UID {
				gated, bound = gated || pvc.Gated(v.Pod), bound || v.Pod.Spec.NodeName != ""
			}
		}
		return errors.Join(err, lacking("gated", true, gated), lacking("bound", true, bound))
	})
	s.check("how it came", history.Judge(told, true))
}

// TestStrictWritesPodsOnTheirClaimsBeforeTheyAreScheduled, whichever scheduler there
// is, and lets nobody by who has to wait.
func TestStrictWritesPodsOnTheirClaimsBeforeTheyAreScheduled(t *testing.T) {
	aside(t)
	s := newStrictScene(t)
	s.boundClaim("data")
	claim := s.boundClaim("logs")
	s.create(newUser(s.namespace, "web", []string{"data", "logs"}))
	s.checkLifted(s.awaitScheduled("web"), "data", "logs")
	s.create(newUser(s.namespace, "none", nil))
	s.awaitScheduled("none")

	web, err := s.pod("web")
	s.check("pod web", err)
	s.remove(web)
	s.eventually("nobody stands on the claims", func() error {
		return errors.Join(lacking("use record", "", s.recordOf("logs")), lacking("use record", "", s.recordOf("data")))
	})

	s.check("release claim logs", s.client.Patch(s.Context(), claim.DeepCopy(), released(claim))) // the hold outlives the pod by its grace
	s.remove(claim)
	s.create(newUser(s.namespace, "late", []string{"data", "logs"}))
	s.awaitToldPod("late", "ClaimUnusable", "logs")
	s.check("pod late waits", s.isGated("late"))
	s.check("pod late waits for logs", lacking("use record", "", s.recordOf("data")))
	s.vanish(claim)
	s.awaitToldPod("late", "AwaitingClaim", "logs")
	s.classClaim("logs", "local")
	s.checkLifted(s.awaitScheduled("late"), "data", "logs")
}

// TestStrictWaitsForTheOperator: with the operator down nobody gets by, and all go
// on when it is back.
func TestStrictWaitsForTheOperator(t *testing.T) {
	s := newStrictScene(t)
	s.boundClaim("data")
	s.check("kill the operator", bed.operator.kill())
	s.create(newUser(s.namespace, "web", []string{"data"}))
	s.awaitRefused("web", "SchedulingGated")
	s.check("nobody wrote on the claim", lacking("use record", "", s.recordOf("data")))
	s.check("start the operator", bed.operator.start())
	s.checkLifted(s.awaitScheduled("web"), "data")
}
