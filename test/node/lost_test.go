//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/drill"
)

// A kubelet dies while a group ends: its pods stay, and so does all that bears their names.
// The group waits, and says for what and what to do; the taint for a node that is off for
// certain frees it, and the group comes again when there is a node.
func TestALostNode(t *testing.T) {
	s := newScene(t)
	s.check("make disks", bed.addDisks(t.Context(), 4))
	set := s.newSet("a", 1, 3, args("--linger", "10m"), withDisks)
	s.create(set)
	s.awaitAvailable(set)
	before := s.uids()
	claim := s.mustClaim("data-a-0-1")

	s.remove(s.mustPod("a-0"))
	s.eventually("all pods of the group are to end", func() error {
		for name, uid := range before {
			if s.pods.life(uid).leaving == 0 {
				return fmt.Errorf("pod %s is not", name)
			}
		}
		return nil
	})
	s.check("kill the kubelet", bed.node.killKubelet())
	t.Cleanup(s.bringBack)
	s.tell("the kubelet is dead")

	s.eventually("the node is not ready", s.nodeLost)
	s.eventually("status says what the group waits for and what to do", func() error {
		return lacks(s.plugin("status", "a"), "pod a-0 goes", "pod a-0-1 goes", "pod a-0-2 goes", "kubectl taint node "+nodeName)
	})
	if plan := s.plugin("plan", "a"); strings.Contains(plan, "write") {
		t.Errorf("the plugin takes the operator for late:\n%s", plan)
	}
	s.Logf("kubectl lockstep status:\n%s", s.plugin("status", "a"))
	s.remove(claim)
	s.eventually("why says who holds a claim and what to do", func() error {
		return lacks(s.plugin("why", "pvc/data-a-0-1"), "a-0-1", nodeName, "out-of-service")
	})
	s.Logf("kubectl lockstep why:\n%s", s.plugin("why", "pvc/data-a-0-1"))
	s.awaitFinalizers(claim, podProtection, barrier)
	for name, count := range s.created() {
		if count != 1 {
			t.Errorf("%d pods %s were created while its namesake was there", count, name)
		}
	}

	s.check("taint the node", s.taint(`[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]`))
	s.eventually("the old pods are gone", func() error {
		for name, uid := range before {
			if s.pods.life(uid).gone == 0 {
				return fmt.Errorf("pod %s is not", name)
			}
		}
		return nil
	})
	s.awaitGone(claim)
	s.bringBack()
	s.awaitAnother(set, before, "a-0", "a-0-1", "a-0-2")
	for name, count := range s.created() {
		if count != 2 {
			t.Errorf("%d pods %s were created", count, name)
		}
	}
	if now := s.mustClaim("data-a-0-1"); now.UID == claim.UID || len(s.livesOn(claim)) == 0 {
		t.Errorf("claim %s, and on the disk of the former: %q", now.UID, s.livesOn(claim))
	}
}

// bringBack starts the kubelet if it is dead, and takes the taint off the node.
func (s *scene) bringBack() {
	if s.nodeLost() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drill.Patience)
	defer cancel()
	if err := errors.Join(s.taint(`null`), bed.node.startKubelet(), bed.awaitNode(ctx)); err != nil {
		s.Errorf("bring the node back: %v", err)
	}
}

func (s *scene) nodeLost() error {
	node := &corev1.Node{}
	if err := s.Get(context.Background(), client.ObjectKey{Name: nodeName}, node); err != nil {
		return err
	}
	if nodeReady(node) {
		return errors.New("it is ready")
	}
	return nil
}

func (s *scene) taint(taints string) error {
	node := &corev1.Node{}
	node.Name = nodeName
	return s.Patch(context.Background(), node, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"taints":%s}}`, taints)))
}

// lacks is an error if a text lacks any of these words.
func lacks(text string, wanted ...string) error {
	for _, word := range wanted {
		if !strings.Contains(text, word) {
			return fmt.Errorf("it does not say %q:\n%s", word, text)
		}
	}
	return nil
}
