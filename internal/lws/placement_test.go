package lws_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/test/fakeapi"
)

var placementKeys = []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey}

// place changes a placement of a set called w.
func place(key, topology string) step {
	if topology == "" {
		return user(without(key))
	}
	return user(fakeapi.Annotation(key, topology))
}

// checkPlaced checks the placement of all pods.
func checkPlaced(c *cluster, key, topology string) {
	c.t.Helper()
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		if got := pod.Annotations[key]; got != topology {
			c.t.Fatalf("pod %s is placed by %s %q, want %q", pod.Name, key, got, topology)
		}
	}
}

// Workers go to the domain of their leader, where it was sent there by its set: not where the set
// would send another one, nor after a leader whose own template places it.
func TestWorkersGoWhereTheirLeaderWasSent(t *testing.T) {
	const key = lwsv1.ExclusiveKeyAnnotationKey
	labels := map[string]string{"rack": "r1", "zone": "z1", "nameless": ""}
	by := func(topology string) step {
		return on("w-0", func(pod Pod) { pod.Annotations[key] = topology })
	}
	ssd := func(set Set) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	for name, tt := range map[string]struct {
		edits    []edit
		happens  step
		topology string
		selector map[string]string
	}{
		"its domain":            {[]edit{fakeapi.Annotation(key, "rack")}, nothing, "rack", map[string]string{"rack": "r1"}},
		"a selector of its own": {[]edit{fakeapi.Annotation(key, "rack"), ssd}, nothing, "rack", map[string]string{"rack": "r1", "disk": "ssd"}},
		"the nameless domain":   {[]edit{fakeapi.Annotation(key, "nameless")}, nothing, "nameless", map[string]string{"nameless": ""}},
		"another one since":     {nil, then(by("rack"), place(key, "zone")), "rack", map[string]string{"rack": "r1"}},
		"none before":           {nil, then(pause, place(key, "zone")), "", nil},
	} {
		c := running(t, 1, 3, tt.edits...)
		if node(labels)(c); len(tt.edits) > 0 {
			c.settle()
		}
		then(tt.happens, withoutWorkers)(c)
		sts := one[action.Create](t, c.decideGroup("w-0")).Object.(StatefulSet)
		if template := sts.Spec.Template; !cmp.Equal(template.Spec.NodeSelector, tt.selector) || template.Annotations[key] != tt.topology {
			t.Errorf("%s: placed by %q, %v", name, template.Annotations[key], template.Spec.NodeSelector)
		}
	}
	for _, key := range placementKeys {
		for _, happens := range []edit{func(Set) {}, fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue)} {
			c := running(t, 1, 2, fakeapi.Leader("image:1"), happens, func(set Set) {
				set.Spec.LeaderWorkerTemplate.LeaderTemplate.Annotations = map[string]string{key: "rack"}
			})
			template := find[StatefulSet](c, "w-0").Spec.Template
			if leader := find[Pod](c, "w-0"); leader.Annotations[key] != "rack" || template.Annotations[key] != "" || len(template.Spec.NodeSelector) > 0 {
				t.Errorf("%s: the leader is placed by %q, workers by %q, %v", key, leader.Annotations[key], template.Annotations[key], template.Spec.NodeSelector)
			}
		}
	}
}
