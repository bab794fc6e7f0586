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

// probed is an API server that is asked for claims: one answer after the other, and the
// last of them for ever. A nil error gives the barrier.
type probed struct {
	client.Client
	answers []error
	asked   int
}

// errBare is the answer of an API server that gives no finalizer any more.
var errBare = errors.New("bare")

func (p *probed) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	answer := p.answers[min(p.asked, len(p.answers)-1)]
	p.asked++
	if answer == nil {
		o.SetFinalizers([]string{pvc.BarrierFinalizer})
	}
	if errors.Is(answer, errBare) {
		return nil
	}
	return answer
}

func TestAnAPIServerThatIsNotWellIsAskedAgainWhetherItGivesFinalizers(t *testing.T) {
	unwell, forbidden := apierrors.NewInternalError(errors.New("etcd has no leader")), apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, c := range map[string]struct {
		answers []error
		asked   int // 0: until the end of the wait
		stops   bool
	}{
		"it gives none":                       {[]error{errBare}, 1, false},
		"it gave some":                        {[]error{nil, nil, errBare}, 3, false},
		"it gives some for ever":              {[]error{nil}, 0, true},
		"nobody may ask":                      {[]error{forbidden}, 1, false},
		"it was not well, and gives some":     {[]error{unwell, nil}, 0, true},
		"it was not well, and gives none":     {[]error{unwell, unwell, errBare}, 3, false},
		"it gave some, and is not well since": {[]error{nil, unwell}, 0, true},
		"it is never well":                    {[]error{unwell}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probed{answers: c.answers}
				w := &withdrawal{Options: Options{Timeout: time.Minute}, Withdrawal: withdraw.Withdrawal{Client: p}}
				if err := w.awaitNoFinalizers(t.Context()); (err != nil) != c.stops {
					t.Errorf("got %v", err)
				}
				if c.asked > 0 && p.asked != c.asked || c.asked == 0 && p.asked < int(time.Minute/pause) {
					t.Errorf("asked %d times", p.asked)
				}
			})
		})
	}
}
