package lws_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// data is the data of the revision of a set.
func data(t testing.TB, set *lwsv1.LeaderWorkerSet) []byte {
	t.Helper()
	return expect.Value(lwsrevision.Data(set))(t)
}

// olderData is the data of a revision as a version of the types that wrote null timestamps stored it.
var olderData = []byte(`{"spec":{"leaderWorkerTemplate":{"$patch":"replace","restartPolicy":"RecreateGroupOnPodRestart","size":2,` +
	`"workerTemplate":{"metadata":{"creationTimestamp":null},"spec":{"containers":[{"image":"image:1","name":"worker","resources":{}}]}}},` +
	`"networkConfig":{"$patch":"replace","subdomainPolicy":"Shared"}}}`)

// atKey gives the only revision of a set in step, and all that runs it, other data.
func atKey(c *cluster, data []byte) {
	key := lwsrevision.Key(data)
	relabel := func(labels map[string]string) { labels[lwsv1.RevisionKey] = key }
	on(revision(c).Name, func(r Revision) { r.Data.Raw = data; relabel(r.Labels) })(c)
	for _, sts := range fakeapi.All[StatefulSet](c.Objects) {
		on(sts.Name, func(sts StatefulSet) { relabel(sts.Labels); relabel(sts.Spec.Template.Labels) })(c)
	}
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		on(pod.Name, func(pod Pod) { relabel(pod.Labels) })(c)
	}
}

// filed are the images and numbers of the revisions in use, and after "|" of the history.
func filed(c *cluster) string {
	c.t.Helper()
	var inUse, history []string
	for _, r := range revisions(c) {
		restored := expect.Value(lwsrevision.Restore(find[Set](c, "w"), r.Data.Raw))(c.t)
		what := fmt.Sprintf("%s#%d", imageOf(restored, 1), r.Revision)
		switch {
		case r.Labels[lwsv1.SetNameLabelKey] == "w" && r.Labels[lwsrevision.HistoryLabelKey] == "":
			inUse = append(inUse, what)
		case r.Labels[lwsrevision.HistoryLabelKey] == "w" && r.Labels[lwsv1.SetNameLabelKey] == "":
			history = append(history, what)
		default:
			c.t.Fatalf("revision %s has labels %v", r.Name, r.Labels)
		}
	}
	slices.Sort(inUse)
	slices.Sort(history)
	return strings.Join(inUse, " ") + " | " + strings.Join(history, " ")
}

// images rolls the set through images of these numbers.
func images(from, to int) step {
	return func(c *cluster) {
		for i := from; i <= to; i++ {
			image(c, fmt.Sprintf("image:%d", i))
			c.settle()
		}
	}
}

// lost removes the revisions in use, and the leader StatefulSet.
func lost(c *cluster) {
	for _, r := range revisions(c) {
		if workload.BearsName(r, "w") {
			gone[Revision](r.Name)(c)
		}
	}
	gone[StatefulSet]("w")(c)
}

// fileAway puts the only revision into the history.
func fileAway(c *cluster) {
	on(revision(c).Name, func(r Revision) {
		delete(r.Labels, lwsv1.SetNameLabelKey)
		r.Labels[lwsrevision.HistoryLabelKey] = "w"
	})(c)
}

func TestRevisionHistory(t *testing.T) {
	limit := func(limit string) edit { return fakeapi.Annotation(lwsv1.HistoryLimitAnnotationKey, limit) }
	const five = "image:7#7 | image:2#2 image:3#3 image:4#4 image:5#5 image:6#6"
	for name, tt := range map[string]struct {
		edit    edit
		happens step
		want    string
	}{
		"five by default":             {func(Set) {}, images(2, 7), five},
		"as many as asked for":        {limit("2"), images(2, 7), "image:7#7 | image:5#5 image:6#6"},
		"none":                        {limit("0"), images(2, 7), "image:7#7 | "},
		"five when not a number":      {limit("-1"), images(2, 7), five},
		"undone":                      {func(Set) {}, then(images(2, 2), images(1, 1)), "image:1#3 | image:2#2"},
		"filed away by hand":          {func(Set) {}, then(fileAway, withoutWorkers), "image:1#1 | "},
		"numbered above it":           {func(Set) {}, then(images(2, 2), lost), "image:2#2 | image:1#1"},
		"with groups held back":       {partitioned(1), images(2, 9), "image:1#1 image:9#9 | image:4#4 image:5#5 image:6#6 image:7#7 image:8#8"},
		"held back, a leader is gone": {partitioned(1), then(images(2, 2), removed[Pod]("w-0")), "image:1#1 image:2#2 | "},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 2, 2, tt.edit)
			first := revision(c)
			tt.happens(c)
			c.settle()
			expect.Equal(t, tt.want, filed(c))
			if kept := fakeapi.Find[Revision](c.Server, first.Name); strings.Contains(tt.want, "image:1#") && (kept == nil || kept.UID != first.UID) {
				t.Error("the first revision was created again")
			}
		})
	}
}

// What is lost or scaled while a template waits is created at the revision that runs.
func TestAPausedSetIsRepairedAtItsOwnRevision(t *testing.T) {
	size := func(set Set) { set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](3) }
	for name, tt := range map[string]struct {
		harm step
		pods int
	}{
		"scaled":                 {user(replicas(4), size), 8},
		"a worker StatefulSet":   {then(gone[StatefulSet]("w-1"), gone[Pod]("w-1-1")), 4},
		"the leader StatefulSet": {func(c *cluster) { c.Remove(find[StatefulSet](c, "w"), metav1.DeletePropagationOrphan) }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 2, 2, fakeapi.UniquePerReplica)
			then(pause, user(fakeapi.Image("image:2"), shared), settled, tt.harm, settled, after(time.Minute), settled)(c)
			checkImage(c, "image:1", tt.pods)
			if got := c.status(); int(got.ReadyReplicas) != tt.pods/2 || condition(got, updating).Reason != lws.CodePaused {
				t.Errorf("got %v, %d ready", brief(got), got.ReadyReplicas)
			}
			for _, name := range []string{"w-0", "w-1"} {
				service := fakeapi.Find[Service](c.Server, name)
				if workers := find[StatefulSet](c, name); workers.Spec.ServiceName != name || service == nil {
					t.Errorf("workers of %s use Service %q; found: %v", name, workers.Spec.ServiceName, service)
				}
			}
			then(resume, settled)(c)
			if got := runningImages(c); got["image:1"] != 0 || brief(c.status())[available] != isAvailable {
				t.Errorf("resumed: pods run %v, %v", got, brief(c.status()))
			}
		})
	}
}

// A set that does not know what its groups run replaces none of them.
func TestAPausedSetWhoseRevisionIsLostReplacesNoGroup(t *testing.T) {
	c := running(t, 2, 2)
	then(pause, user(fakeapi.Image("image:2")), settled)(c)
	then(gone[Revision](revision(c).Name), user(replicas(3)), after(time.Minute))(c)
	settled(c)
	if got := runningImages(c); got["image:1"] != 4 || got["image:2"] != 2 || condition(c.status(), updating).Reason != lws.CodePaused {
		t.Errorf("pods run %v, %v", got, brief(c.status()))
	}
	then(resume, settled)(c)
	checkImage(c, "image:2", 6)
}

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
			expect.Must(t, len(before) == 3, "%s: %d groups have the former template", name, len(before))
			if ends(c); len(c.leaders()) != 4 {
				t.Errorf("%s: %d groups", name, len(c.leaders()))
			}
			after := c.leaders()
			for leader, uid := range before {
				expect.Equalf(t, uid, after[leader], "%s, size %d: group of %s", name, size, leader)
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
