//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/drill"
)

const (
	modeKey   = "protection.lockstep.dev/mode"
	usedBy    = "protection.lockstep.dev/used-by"
	releaseOf = "protection.lockstep.dev/release"
)

// In mode strict no pod comes to a kubelet before it is written on its claims: those of a
// group that is recreated either.
func TestStrict(t *testing.T) {
	s := newScene(t)
	s.applyStrict()
	s.check("make disks", bed.addDisks(t.Context(), 3))
	set := s.newSet("a", 1, 3, withDisks)
	s.create(set)
	s.awaitAvailable(set)
	s.checkRecorded("a-0", "a-0-1", "a-0-2")
	before := s.uids()
	s.killContainerOf("a-0-1")
	s.awaitAnother(set, before, "a-0", "a-0-1", "a-0-2")
	s.checkRecorded("a-0", "a-0-1", "a-0-2")
	s.checkInherited(before, s.uids(), "a-0", "a-0-1", "a-0-2")

	if err := s.Delete(t.Context(), s.mustClaim("data-a-0-1")); !apierrors.IsForbidden(err) {
		t.Errorf("a claim in use was deleted: %v", err)
	}

	claim := s.newClaim("alone")
	s.check("kill the operator", bed.operator.Kill())
	pod := s.newUser("alone", claim.Name)
	s.create(pod)
	s.eventually("a pod is gated while no operator runs", func() error {
		return s.gated("alone")
	})
	s.check("another pod runs", s.runs("witness"))
	s.check("the pod still waits", s.gated("alone"))
	s.check("start the operator", bed.operator.Start())
	s.eventually("the pod runs", func() error { return s.running("alone") })
	if have, want := s.mustClaim("alone").Annotations[usedBy], "alone="+string(pod.UID); have != want {
		t.Errorf("on the claim stands %q, want %q", have, want)
	}
}

func (s *scene) gated(name string) error {
	pod, err := s.pod(name)
	if err == nil && (len(pod.Spec.SchedulingGates) == 0 || pod.Spec.NodeName != "") {
		err = fmt.Errorf("gates %v, node %q", pod.Spec.SchedulingGates, pod.Spec.NodeName)
	}
	return err
}

// applyStrict has the namespace in mode strict, and waits until the policies act.
func (s *scene) applyStrict() {
	s.Helper()
	out, err := exec.Command(bed.plane.Program, "kubectl", "--kubeconfig", bed.plane.Kubeconfig(), "apply", "-f", "../../config/protection/strict.yaml").CombinedOutput()
	if err != nil {
		s.Fatalf("apply the policies of mode strict: %v\n%s", err, out)
	}
	namespace := &corev1.Namespace{}
	s.check("read the namespace", s.Get(s.Context(), client.ObjectKey{Name: s.namespace}, namespace))
	s.check("choose mode strict", s.Patch(s.Context(), namespace, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"strict"}}}`, modeKey))))
	s.Cleanup(func() { // it goes with its claims, before its scene is struck
		release := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, releaseOf, namespace.UID)
		if err := s.Patch(context.Background(), namespace, client.RawPatch(types.MergePatchType, release)); err != nil {
			s.Logf("release the namespace: %v", err)
		}
	})
	s.eventually("a pod that names its node is refused", func() error {
		pod := s.newUser("probe", "none")
		pod.Spec.NodeName = nodeName
		if err := s.Create(s.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
}

// checkRecorded checks that pods were written on their claims, and bound after: by the audit
// log, which is in the order of answers.
func (s *scene) checkRecorded(names ...string) {
	s.Helper()
	for _, name := range names {
		pod := s.mustPod(name)
		if have, want := s.mustClaim("data-" + name).Annotations[usedBy], name+"="+string(pod.UID); have != want {
			s.Errorf("on the claim of %s stands %q, want %q", name, have, want)
		}
	}
	s.check("read the audit log", bed.audit.Sync())
	recorded := map[string]bool{}
	for _, r := range bed.audit.Kept(s.audited, func(r drill.Request) bool { return r.Namespace == s.namespace && r.Code < 300 }) {
		switch {
		case r.Resource == "persistentvolumeclaims" && drill.ByLockstep(r):
			recorded[r.Name] = true
		case r.Resource == "pods" && r.Subresource == "binding" && !recorded["data-"+r.Name]:
			s.check("order", errors.New("pod "+r.Name+" was bound before anything was written on its claim"))
		}
	}
}
