package observe

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A reading of a namespace tells of every pod that is in it. Shared for a moment, it was
// kept until another one of that namespace took its place, if ever.
func TestAReadingThatNobodyAsksForIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReadings[[]string](1).in("ns")
		reads := 0
		ask := func() {
			t.Helper()
			nobody := func() ([]types.UID, error) { return nil, nil }
			value, err := r.of(inquiry[[]string]{claims: []types.UID{"claim"}, now: time.Now(), seen: nobody, read: func() ([]string, error) {
				reads++
				return []string{"pod"}, nil
			}})
			if err != nil || len(value) != 1 {
				t.Errorf("read %v: %v", value, err)
			}
		}
		ask()
		time.Sleep(keptFor - shareFor)
		ask()
		ask()
		time.Sleep(shareFor + time.Second) // the first one would be let go of now
		synctest.Wait()
		if reads != 2 || r.value == nil {
			t.Errorf("%d readings, and the last one is %v", reads, r.value)
		}
		time.Sleep(keptFor)
		synctest.Wait()
		if r.value != nil || r.seen != nil {
			t.Errorf("%v is kept", r.value)
		}
		ask()
		if reads != 3 {
			t.Errorf("%d readings", reads)
		}
	})
}
