package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// ending is a load of 10 groups of 4 whose pods take 3 s to end and 2 s to be ready.
func ending(policy lwsv1.PodTerminationPolicyType) load {
	l := own(10, 4)
	l.edit = func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.PodTerminationPolicy = policy
		set.Spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable = intstr.FromInt32(2)
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{
			"local.lockstep.dev/vanish-after": "3s", "local.lockstep.dev/ready-after": "2s",
		}
	}
	return l
}

// ended measures the same end of groups under both policies.
func ended(do func(*stage) cost) func(*bed) {
	return func(b *bed) {
		measured := func(policy lwsv1.PodTerminationPolicyType) cost {
			s := b.standing(ending(policy))
			defer s.leave()
			s.rest()
			return do(s)
		}
		byDefault := measured(lwsv1.DefaultPodTermination)
		b.tellCost(measured(lwsv1.ParallelPodTermination), cost{})
		b.tell("default-seconds", byDefault.time.Seconds())
		b.tell("default-writes", float64(byDefault.writes))
		b.tell("default-refused-writes", float64(byDefault.refused))
	}
}

// endGroup deletes a leader, and waits until its former group is gone.
func endGroup(s *stage) cost {
	var former []types.UID
	holding(s.census, func() int {
		for uid, pod := range s.pods {
			if pod.group == "a-3" {
				former = append(former, uid)
			}
		}
		return len(former)
	})
	valid(len(former) == s.size, "the group has %d pods", len(former))
	return s.spend("the group is gone",
		func() error { return s.Client.Delete(s.ctx, &corev1.Pod{ObjectMeta: s.meta("a-3")}) },
		func() bool {
			return !slices.ContainsFunc(former, func(uid types.UID) bool { _, there := s.pods[uid]; return there })
		})
}

// endRoll gives all groups another template.
func endRoll(s *stage) cost {
	c := s.spend("all groups are rolled",
		func() error { return s.Client.Patch(s.ctx, s.newSet(), drill.Merge(withImage(imageB))) },
		func() bool { return s.complete() && s.allAt(imageB) })
	valid(c.pods == s.groups*s.size, "%d pods were created", c.pods)
	return c
}

// endSet deletes the set.
func endSet(s *stage) cost {
	return s.spend("all pods are gone", func() error { return s.remove(s) }, s.empty)
}
