package render

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws"
)

// The status and the plan of a set say as much of a million groups, or workers, that do not exist as of a thousand.
func TestTextCostsWhatExists(t *testing.T) {
	for name, survey := range map[string]func(n int32) clilws.Survey{
		"no group":         func(n int32) clilws.Survey { return newSurvey(n, 2) },
		"gaps":             func(n int32) clilws.Survey { return with(with(newSurvey(n, 2), 3, "++"), 7, "+.") },
		"a surplus group":  func(n int32) clilws.Survey { return with(newSurvey(n, 2), int(n)+3, "++") },
		"workers lack":     func(n int32) clilws.Survey { return sized(with(newSurvey(2, n), 0, "+.+"), n) },
		"no worker exists": func(n int32) clilws.Survey { return sized(with(newSurvey(2, n), 0, "+"), n) },
	} {
		cost := func(n int32) float64 {
			s := survey(n)
			return testing.AllocsPerRun(2, func() {
				s.Standing.States[lws.GroupStarting] = n
				for _, report := range []Report{Status(s), Plan(s)} {
					if text := Text(report, now); len(text) > 20_000 {
						t.Errorf("%s: %d bytes", name, len(text))
					}
				}
			})
		}
		if few, many := cost(1000), cost(1_000_000); many > few+100 {
			t.Errorf("%s: %.0f allocations, %.0f for 1000", name, many, few)
		}
	}
}

// sized makes the first group one of so many pods.
func sized(s clilws.Survey, size int32) clilws.Survey {
	workers := size - 1
	s.Groups[0].Workers.Owned[0].Spec.Replicas = &workers
	s.Groups[0].Leader.Annotations = nil
	return s
}

// Groups in a row of which nothing exists are one entry, and so are their waits.
func TestGroupsOfWhichNothingExistsAreOneEntry(t *testing.T) {
	s := with(newSurvey(1_000_000, 2), 3, "++")
	s.Standing.States[lws.GroupStarting] = 999_999
	var got [][2]int
	for _, g := range Status(s).Groups {
		got = append(got, [2]int{g.Index, g.LastIndex})
	}
	if want := [][2]int{{0, 2}, {3, 0}, {4, 999_999}}; len(got) != 3 || [3][2]int(got) != [3][2]int(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var waits []int
	for _, part := range Plan(s).Parts {
		waits = append(waits, part.LastGroup)
	}
	if len(waits) != 3 || waits[1] != 2 || waits[2] != 999_999 {
		t.Errorf("the plan has waits for groups up to %v", waits)
	}
}

// The missing workers that are named are the first ones.
func TestTheFirstMissingWorkersAreNamed(t *testing.T) {
	s := sized(with(newSurvey(1, 1_000_000), 0, "+-.+.."), 1_000_000)
	s.Groups[0].Pods.Owned = []*corev1.Pod{s.Groups[0].Pods.Owned[1], s.Groups[0].Pods.Owned[0]} // a cache has no order
	want := "999997 of 999999 workers not created yet: llama-0-2, llama-0-4, llama-0-5, llama-0-6 and 999993 more"
	if waiting := Status(s).Groups[0].Waiting; waiting[0].Message != want {
		t.Errorf("got %q, want %q", waiting[0].Message, want)
	}
}
