package cluster

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestManyClaimsAreReleasedOverAKill kills the operator while it releases hundreds of PVCs, some of
// them in use.
func TestManyClaimsAreReleasedOverAKill(t *testing.T) {
	const every = 25 // one in so many is used
	many := 500
	if soak() {
		many = 5000
	}
	s := newScene(t)
	bed.hasSet(s.namespace)
	names := make([]string, many)
	s.together(many, func(i int) error {
		names[i] = fmt.Sprint("claim-", i)
		return s.client.Create(t.Context(), s.newClaim(names[i]))
	})
	s.awaitProtected(names...)
	before, err := s.claims()
	s.check("list claims", err)
	var pods []*corev1.Pod
	used := map[string]types.UID{}
	for i := 0; i < many; i += every {
		pods = append(pods, s.user(fmt.Sprint("user-", i), []string{names[i]}))
		used[names[i]] = before[names[i]].UID
	}
	s.check("delete all claims", s.client.DeleteAllOf(t.Context(), &corev1.PersistentVolumeClaim{}, client.InNamespace(s.namespace)))
	s.eventually("a part is released", func() error {
		left, err := s.claims()
		if n := len(left); err != nil || n > many-every || n <= len(used)+every {
			return errors.Join(err, fmt.Errorf("%d are left", n))
		}
		return nil
	})
	s.check("kill the operator", bed.operator.Kill())
	left, err := s.claims()
	s.check("list claims", err)
	s.check("start the operator", bed.operator.Start())
	if len(left) <= len(used) {
		t.Fatalf("invalid run: only %d claims were left when the operator was killed", len(left))
	}
	s.eventually("only what is used is left", func() error {
		left, err := s.claims()
		return errors.Join(err, lacking("claims", len(used), len(left)))
	})
	left, err = s.claims()
	s.check("list claims", err)
	for name, uid := range used {
		if left[name] == nil || left[name].UID != uid {
			t.Errorf("claim %s is lost under its pod", name)
		}
	}
	for _, pod := range pods {
		s.remove(pod, client.GracePeriodSeconds(0))
	}
	s.eventually("all are gone", func() error {
		left, err := s.claims()
		return errors.Join(err, lacking("claims", 0, len(left)))
	})
}

// together does something n times, up to 16 at once.
func (s *scene) together(n int, do func(int) error) {
	s.Helper()
	errs := make([]error, n)
	var working sync.WaitGroup
	room := make(chan struct{}, 16)
	for i := range n {
		room <- struct{}{}
		working.Go(func() { defer func() { <-room }(); errs[i] = do(i) })
	}
	working.Wait()
	s.check("do all of it", errors.Join(errs...))
}
