package install

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install/withdraw"
	"lockstep.dev/lockstep/internal/pvc"
)

// probed answers dry runs of PVCs in order, and repeats its last answer.
type probed struct {
	client.Client
	answers []error
}

// The answers that are no errors of an API server.
var errBarrier, errBare = errors.New("with the barrier"), errors.New("without it")

func (p *probed) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	answer := p.answers[0]
	p.answers = p.answers[min(1, len(p.answers)-1):]
	switch {
	case errors.Is(answer, errBarrier):
		o.SetFinalizers([]string{pvc.BarrierFinalizer})
		return nil
	case errors.Is(answer, errBare):
		return nil
	}
	return answer
}

func TestUninstallWaitsUntilNewPVCsGetNoFinalizer(t *testing.T) {
	unwell, forbidden := apierrors.NewInternalError(errors.New("etcd has no leader")), apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, c := range map[string]struct {
		answers []error
		fails   bool
	}{
		"without":              {[]error{errBare}, false},
		"with, then without":   {[]error{errBarrier, errBarrier, errBare}, false},
		"always with":          {[]error{errBarrier}, true},
		"not permitted":        {[]error{forbidden}, false},
		"error, then with":     {[]error{unwell, errBarrier}, true},
		"errors, then without": {[]error{unwell, unwell, errBare}, false},
		"with, then errors":    {[]error{errBarrier, unwell}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &withdrawal{Options: Options{Timeout: time.Minute}, Withdrawal: withdraw.Withdrawal{Client: &probed{answers: c.answers}}}
				if err := w.awaitNoFinalizers(t.Context()); (err != nil) != c.fails {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
