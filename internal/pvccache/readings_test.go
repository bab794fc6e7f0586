package pvccache

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

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
		time.Sleep(2 * shareFor) // the first one would be let go of now
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

// However many namespaces are read within the time that a reading is kept for, as many are
// in memory as are to be.
func TestAReadingThatAnotherTookThePlaceOfIsLetGoAtOnce(t *testing.T) {
	all := newReadings[*[1 << 20]byte](1)
	read := func(namespace string) weak.Pointer[[1 << 20]byte] {
		value, err := all.in(namespace).of(inquiry[*[1 << 20]byte]{
			now: time.Now(), seen: func() ([]types.UID, error) { return nil, nil },
			read: func() (*[1 << 20]byte, error) { return new([1 << 20]byte), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		return weak.Make(value)
	}
	first, last := read("a"), read("b")
	runtime.GC()
	if first.Value() != nil {
		t.Error("a reading stays in memory that nobody can ask for any more")
	}
	if last.Value() == nil {
		t.Error("the last reading is gone already")
	}
	runtime.KeepAlive(all)
}

// Claims come in several namespaces at once, one here and one there, to as many workers as
// there are: each namespace is read once all the same.
func TestNamespacesThatAreReadAtOnceShareTheirReadingsEach(t *testing.T) {
	const workers = 8
	all, reads := newReadings[string](sharedWorlds), 0
	for range 3 {
		for namespace := range workers {
			_, err := all.in(fmt.Sprint("ns-", namespace)).of(inquiry[string]{
				claims: []types.UID{"claim"}, now: time.Unix(0, 0),
				seen: func() ([]types.UID, error) { return nil, nil }, read: func() (string, error) { reads++; return "", nil },
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if reads != workers {
		t.Errorf("%d readings of %d namespaces", reads, workers)
	}
}
