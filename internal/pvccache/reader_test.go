package pvccache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// A live read is shared only by calls that came before it began.
func TestALiveReadIsSharedByEarlierCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads liveReads
		begun, end, got := 0, make(chan struct{}), make(chan *Namespace, 9)
		ask := func(namespace string) {
			got <- reads.of(namespace, func() *Namespace {
				begun++
				<-end
				return &Namespace{}
			})
		}
		go ask("a")
		synctest.Wait()
		for range 3 { // the first has begun: these share the next
			go ask("a")
		}
		go ask("b") // another namespace does not wait
		synctest.Wait()
		if begun != 2 {
			t.Errorf("%d reads run, want one of each namespace", begun)
		}
		for range 3 { // the reads that run, and then the shared one
			end <- struct{}{}
			synctest.Wait()
		}
		if begun != 3 || len(got) != 5 {
			t.Errorf("%d reads for %d calls", begun, len(got))
		}
	})
}

// unreadable refuses one kind of list; the other lists are empty.
type unreadable struct {
	client.Reader
	kind string
}

func (u unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (u unreadable) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if fmt.Sprintf("%T", list) == u.kind {
		return errors.New("forbidden")
	}
	return nil
}

// Only a live read of all kinds may end a hold: a kind that cannot be read may hold the PVC.
func TestALiveViewNeedsAllKinds(t *testing.T) {
	for kind, complete := range map[string]bool{"": true, "*v1.PodList": false, "*v1.StatefulSetList": false} {
		h := &Holds{Reader: Reader{Live: unreadable{kind: kind}}}
		view, err := h.Live(t.Context(), pvc.HoldView{Claim: going("a")})
		if (err == nil) != complete || view.Live != complete {
			t.Errorf("without %q: live %t, error %v", kind, view.Live, err)
		}
	}
}
