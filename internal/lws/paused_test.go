package lws_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A rollout that is paused after its first group and then undone replaces no group that has the good template,
// whichever of undo and resume is first, and whether a command or a file takes the template back.
func TestUndoOfAPausedRolloutReplacesNoHealthyGroup(t *testing.T) {
	back := user(fakeapi.Image("image:1"))
	for name, ends := range map[string]step{
		"undo, resume":            then(back, settled, resume, settled),
		"undo, resume at once":    then(back, resume, settled),
		"resume, undo":            then(resume, carriedOut, (*cluster).others, back, settled),
		"resume, seconds, undo":   then(resume, carriedOut, after(2*time.Second), carriedOut, (*cluster).others, back, settled),
		"resume, process, undo":   then(resume, (*cluster).awake, carriedOut, (*cluster).others, back, settled),
		"resume, both, undo":      then(resume, carriedOut, (*cluster).awake, carriedOut, (*cluster).others, back, settled),
		"resume, undo, and pause": then(resume, carriedOut, back, pause, settled, resume, settled),
	} {
		for _, size := range []int32{1, 2} {
			c := running(t, 4, size, onRestart)
			user(fakeapi.Image("image:2"))(c)
			for range 20 { // until the first group is deleted
				c.reconcileSet()
				if c.others(); *find[StatefulSet](c, "w").Spec.UpdateStrategy.RollingUpdate.Partition == 3 {
					break
				}
				c.pass(time.Second)
			}
			then(pause, settled)(c)
			before := healthy(c)
			if len(before) != 3 {
				t.Fatalf("%s: %d groups have the former template", name, len(before))
			}
			if ends(c); len(c.leaders()) != 4 {
				t.Errorf("%s: %d groups", name, len(c.leaders()))
			}
			after := c.leaders()
			for leader, uid := range before {
				if after[leader] != uid {
					t.Errorf("%s, size %d: group of %s is replaced", name, size, leader)
				}
			}
			if images := imagesOf(c); images["image:2"] > 0 {
				t.Errorf("%s, size %d: the images are %v", name, size, images)
			}
		}
	}
}

// healthy returns the leaders that have the first template, by name.
func healthy(c *cluster) map[string]types.UID {
	leaders := map[string]types.UID{}
	for name, uid := range c.leaders() {
		if find[Pod](c, name).Spec.Containers[0].Image == "image:1" {
			leaders[name] = uid
		}
	}
	return leaders
}

// imagesOf counts the pods of each image.
func imagesOf(c *cluster) map[string]int {
	images := map[string]int{}
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		if pod.Labels[lwsv1.SetNameLabelKey] == "w" {
			images[pod.Spec.Containers[0].Image]++
		}
	}
	return images
}
