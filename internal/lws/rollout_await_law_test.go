package lws

import (
	"testing"

	"pgregory.net/rapid"
)

// somePlaces are what a look shows of so many groups.
func somePlaces(t *rapid.T, count int32, label string) []place {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) place {
		ready, updated := rapid.Bool().Draw(t, "ready"), rapid.Bool().Draw(t, "updated")
		return place{ready: ready, updated: updated, outdated: !updated && rapid.Bool().Draw(t, "outdated")}
	}), int(count), int(count)).Draw(t, label)
}

// TestWhatIsGuessedAndWhatIsToldEndInTurn: while groups stand as they do, what a look
// takes them for before the StatefulSet controller has seen the last write, and what it
// takes them for after, lead to no write over and over.
func TestWhatIsGuessedAndWhatIsToldEndInTurn(t *testing.T) {
	awaited := 0
	rapid.Check(t, func(t *rapid.T) {
		r := rollout{
			replicas: rapid.Int32Range(0, 5).Draw(t, "replicas"), keep: rapid.Int32Range(0, 5).Draw(t, "keep"),
			unavailable: rapid.Int32Range(0, 3).Draw(t, "unavailable"), surge: rapid.Int32Range(0, 3).Draw(t, "surge"),
			running: rapid.Int32Range(0, 8).Draw(t, "running"), partition: rapid.Int32Range(0, 8).Draw(t, "partition"),
			paused: rapid.Bool().Draw(t, "paused"), observed: rapid.Bool().Draw(t, "observed"),
		}
		r.surge, r.unavailable = min(r.surge, r.replicas), min(r.unavailable, r.replicas)
		r.applied = rapid.SampledFrom([]int32{r.replicas, rapid.Int32Range(0, 5).Draw(t, "other")}).Draw(t, "applied")
		guessed, told := somePlaces(t, 16, "guessed"), somePlaces(t, 16, "told")
		const many = 20 // a partition falls through all ordinals, and surge groups go one by one
		for still, writes := 0, 0; still < 2; {
			all := guessed
			if r.observed {
				all = told
			}
			r.places = all[:max(r.replicas, r.running)]
			c := r.next()
			if c == (course{r.partition, r.running}) && r.applied == r.replicas {
				r.observed = true
				still++
				continue
			}
			awaited += int(one(!r.observed))
			if still, writes = 0, writes+1; writes > many {
				t.Fatalf("%d writes: %+v to %+v", writes, r, c)
			}
			r.partition, r.running, r.applied, r.observed = c.partition, c.replicas, r.replicas, false
		}
	})
	if awaited == 0 {
		t.Error("invalid run: nothing was written before the StatefulSet controller had seen what was")
	}
}
