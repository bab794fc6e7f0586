package lws_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

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
			if got := c.status(); int(got.ReadyReplicas) != tt.pods/2 || condition(got, progressing).Reason != lws.CodePaused {
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
	if got := runningImages(c); got["image:1"] != 4 || got["image:2"] != 2 || condition(c.status(), progressing).Reason != lws.CodePaused {
		t.Errorf("pods run %v, %v", got, brief(c.status()))
	}
	then(resume, settled)(c)
	checkImage(c, "image:2", 6)
}
