package lws_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// spoils are what somebody may do to the labels of a revision.
var spoils = []struct {
	name  string
	spoil func(labels map[string]string)
}{
	{"its key is gone", func(labels map[string]string) { delete(labels, lwsv1.RevisionKey) }},
	{"its key is another", func(labels map[string]string) { labels[lwsv1.RevisionKey] = "other" }},
	{"the set's name is gone", func(labels map[string]string) { delete(labels, lwsv1.SetNameLabelKey) }},
	{"the set's name is another", func(labels map[string]string) { labels[lwsv1.SetNameLabelKey] = "other" }},
	{"all are gone", func(labels map[string]string) { clear(labels) }},
}

// Data and name tell what a revision is. One whose labels somebody spoilt was taken for
// lost: it was made a second time, and groups that ran it could not be mended.
func TestARevisionWhoseLabelsWereSpoiltHasThemBack(t *testing.T) {
	for _, tt := range spoils {
		t.Run("of a set at rest: "+tt.name, func(t *testing.T) {
			c := running(t, 2, 2)
			whole := revisions(c)[0]
			pods := podUIDs(c)
			spoil(c, whole.Name, tt.spoil)
			c.settleAll()
			if diff := cmp.Diff([]*appsv1.ControllerRevision{whole}, revisions(c), withoutVersions); diff != "" {
				t.Errorf("revisions (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(pods, podUIDs(c)); diff != "" {
				t.Errorf("pods (-want +got)\n%s", diff)
			}
		})
		t.Run("in mid-rollout: "+tt.name, func(t *testing.T) {
			c := running(t, 3, 2, func(set *lwsv1.LeaderWorkerSet) { rollingOf(set).Partition = lwstest.Ptr[int32](2) })
			first := revisions(c)[0]
			image(c, "image:2")
			c.settleAll()
			pods := podUIDs(c)
			spoil(c, first.Name, tt.spoil)
			lwstest.Drop[*appsv1.StatefulSet](c.FakeStore, "w-0") // a group that nobody can tell what it ran cannot be mended
			c.settleAll()
			if got := find[*appsv1.StatefulSet](c, "w-0").Spec.Template.Spec.Containers[0].Image; got != "image:1" {
				t.Errorf("the workers of group 0 are made of %s", got)
			}
			if diff := cmp.Diff(first.Labels, find[*appsv1.ControllerRevision](c, first.Name).Labels); diff != "" {
				t.Errorf("labels (-want +got)\n%s", diff)
			}
			if got := len(revisions(c)); got != 2 {
				t.Errorf("%d revisions", got)
			}
			for _, leader := range []string{"w-0", "w-1", "w-2"} {
				if podUIDs(c)[leader] != pods[leader] {
					t.Errorf("leader %s is another one", leader)
				}
			}
		})
	}
}

func spoil(c *cluster, name string, how func(map[string]string)) {
	lwstest.Edit(c.FakeStore, name, func(revision *appsv1.ControllerRevision) { how(revision.Labels) })
}

var withoutVersions = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".ResourceVersion" }, cmp.Ignore())

func podUIDs(c *cluster) map[string]string {
	uids := map[string]string{}
	for name, object := range c.Objects {
		if name.Kind == identity.KindPod {
			uids[name.Name] = string(object.GetUID())
		}
	}
	return uids
}

// One made again under a lost key bears another key than its data's, and keeps it: the
// groups know it by that.
func TestARevisionMadeAgainUnderALostKeyKeepsIt(t *testing.T) {
	c := withoutWorkers(t)
	again := rival(t, c, "image:1", 2)
	lost := revisions(c)[0]
	again.OwnerReferences, again.Data.Raw = lost.OwnerReferences, append([]byte(" "), again.Data.Raw...)
	again.Name = "w-" + lws.RevisionKey(again.Data.Raw) + "-2"
	lwstest.Add(c.FakeStore, again)
	lwstest.Drop[*appsv1.ControllerRevision](c.FakeStore, lost.Name)
	if plan := c.decideSet(); len(of[action.Relabel](plan)) != 0 {
		t.Errorf("the set does %s", spelled(plan))
	}
}

// An operator whose cache was late to show the current revision took it for lost, and
// made what the spec said by then under its key. The set was never rolled again.
func TestASetIsRolledThoughWhatItSaysStandsUnderTheKeyOfAnother(t *testing.T) {
	c := running(t, 2, 2)
	again := rival(t, c, "image:2", 2)
	again.OwnerReferences = revisions(c)[0].OwnerReferences
	lwstest.Add(c.FakeStore, again)
	image(c, "image:2")
	c.settleAll()
	if got := find[*appsv1.StatefulSet](c, "w").Spec.Template.Spec.Containers[0].Image; got != "image:2" {
		t.Errorf("leaders are of %s", got)
	}
	for _, revision := range revisions(c) {
		if inUse := revision.Labels[lwsv1.SetNameLabelKey] == "w"; inUse != (revision.Labels[lwsv1.RevisionKey] == find[*appsv1.StatefulSet](c, "w").Labels[lwsv1.RevisionKey]) {
			t.Errorf("revision %s with labels %v", revision.Name, revision.Labels)
		}
	}
}
