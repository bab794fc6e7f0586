package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// sameNumber is a set whose template was changed twice, each time seen by another
// operator that saw nothing of what the other made of it: both made revision 2.
func sameNumber(t *testing.T) *cluster {
	t.Helper()
	c := running(t, 1, 1)
	image(c, "image:2")
	c.do(c.decideSet())
	second := revisionOf(c, "image:2")
	image(c, "image:3")
	c.do(c.decideSet())
	fakeapi.Edit(c.Server, revisionOf(c, "image:3").Name, func(r *appsv1.ControllerRevision) { r.Revision = second.Revision })
	return c
}

// revisionOf is the revision of a set with an image.
func revisionOf(c *cluster, image string) *appsv1.ControllerRevision {
	set := find[*lwsv1.LeaderWorkerSet](c, "w").DeepCopy()
	fakeapi.Image(image)(set)
	for _, revision := range revisions(c) {
		if lws.Agrees(set, revision.Data.Raw) {
			return revision
		}
	}
	c.t.Fatalf("no revision has %s", image)
	return nil
}

// Whoever went back to number 2 was given one of the two.
func TestTwoRevisionsOfOneNumberAreToldApart(t *testing.T) {
	for name, last := range map[string]string{"the one that groups go to": "image:3", "gone back to the other": "image:2"} {
		t.Run(name, func(t *testing.T) {
			c := sameNumber(t)
			image(c, last)
			c.do(c.decideSet())
			if got := revisionOf(c, last).Revision; got != 3 {
				t.Errorf("the last one's number is %d", got)
			}
			c.settleAll()
			numbers := map[int64]string{}
			for _, revision := range revisions(c) {
				if other := numbers[revision.Revision]; other != "" {
					t.Errorf("%s and %s have number %d", other, revision.Name, revision.Revision)
				}
				numbers[revision.Revision] = revision.Name
			}
		})
	}
}
