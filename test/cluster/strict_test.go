package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/protect"
)

// newStrictScene is a scene in mode strict, once the policies act on it.
func newStrictScene(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	bed.hasSet(s.namespace) // the operator may write here
	s.applyPolicies("../../config/protection/strict.yaml")
	namespace := &corev1.Namespace{}
	namespace.Name = s.namespace
	s.patch(namespace, fmt.Sprintf(`{"metadata":{"labels":{%q:"strict"}}}`, protect.ModeKey))
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
		return s.client.Create(s.Context(), newUser(s.namespace, "probe", []string{"none"}), client.DryRunAll)
	})
	return s
}

// released is the patch that lets the deletion of a claim, or of a namespace with held
// claims, through.
func released(object client.Object) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, protect.ReleaseAnnotation, object.GetUID()))
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
	if err == nil && (!protect.Gated(pod) || pod.Spec.NodeName != "") {
		err = fmt.Errorf("gates %v, node %q", pod.Spec.SchedulingGates, pod.Spec.NodeName)
	}
	return err
}

// awaitToldPod waits until an event tells a pod something.
func (s *scene) awaitToldPod(name, reason, note string) {
	s.Helper()
	s.eventually(reason+" is told of pod "+name, func() error {
		for _, e := range live[*eventsv1.Event](s.recorder) {
			if e.Regarding.Name == name && e.Reason == reason && e.Note == note {
				return nil
			}
		}
		return errors.New("it is not")
	})
}

// checkLifted checks in the audit log that a pod was written on its claims, then let
// to the scheduler, then bound, and by whom.
func (s *scene) checkLifted(pod *corev1.Pod, claims ...string) {
	s.Helper()
	for _, name := range claims {
		s.check("claim "+name, lacking("use record", pod.Name+"="+string(pod.UID), s.recordOf(name)))
	}
	s.check("read the audit log", bed.audit.sync())
	wrote := bed.audit.writes(s.audited, func(r request) bool { return r.Namespace == s.namespace && r.Code < 300 })
	at := func(match func(request) bool) int { return slices.IndexFunc(wrote, match) }
	lifted := at(func(r request) bool {
		return byLockstep(r) && r.Verb == "patch" && r.Resource == "pods" && r.Subresource == "" && r.Name == pod.Name
	})
	bound := at(func(r request) bool { return schedules(r) && r.Subresource == "binding" && r.Name == pod.Name })
	if lifted < 0 || bound < 0 || wrote[lifted].Done.After(wrote[bound].Done) {
		s.Fatalf("pod %s was not lifted and then bound: %v", pod.Name, wrote)
	}
	// A claim is written on for its finalizers as well, before.
	for _, name := range claims {
		recorded := at(func(r request) bool {
			return byLockstep(r) && r.Verb == "patch" && r.Resource == "persistentvolumeclaims" && r.Name == name && !r.Done.After(wrote[lifted].Begun) && r.Begun.After(pod.CreationTimestamp.Add(-1))
		})
		if recorded < 0 {
			s.Errorf("claim %s was not written on before the gate of pod %s was lifted: %v", name, pod.Name, wrote)
		}
	}
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
	s.eventually("nobody stands on claim logs", func() error { return lacking("use record", "", s.recordOf("logs")) })

	s.check("release claim logs", s.client.Patch(s.Context(), claim.DeepCopy(), released(claim))) // the hold outlives the pod by its grace
	s.remove(claim)
	s.create(newUser(s.namespace, "late", []string{"data", "logs"}))
	s.awaitToldPod("late", "ClaimUnusable", `not scheduled before it is written on its claims: persistentvolumeclaim "logs" is being deleted`)
	s.check("pod late waits", s.isGated("late"))
	s.check("pod late waits for logs", lacking("use record", "", s.recordOf("data")))
	s.vanish(claim)
	s.awaitToldPod("late", "AwaitingClaim", `not scheduled before it is written on its claims: persistentvolumeclaim "logs" not found`)
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
