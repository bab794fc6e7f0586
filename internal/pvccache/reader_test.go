package pvccache

import (
	"testing"
	"testing/synctest"
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
		go ask("b") // another namespace waits for nobody
		synctest.Wait()
		if begun != 2 {
			t.Errorf("%d reads run, want one of each namespace", begun)
		}
		close(end)
		synctest.Wait()
		if begun != 3 || len(got) != 5 {
			t.Errorf("%d reads for %d calls", begun, len(got))
		}
	})
}
