package cluster

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// nameConflict is the condition that a foreign object has a name of the set.
const nameConflict = "NameConflict"

// The worker StatefulSet of group 1 of set "a" has the name of the leader StatefulSet of set "a-1".
// The second set waits for the name, and has it once the first is gone.
func TestTwoSetsThatWantOneName(t *testing.T) {
	each(t, map[string]bool{"the group was first": false, "the set was first": true}, func(s *scene, setFirst bool) {
		first, later := s.newSet("a", 2, 2, imageA, uniquePerReplica), s.newSet("a-1", 2, 2, imageB)
		var ready []int
		if setFirst {
			first, later, ready = s.newSet("a-1", 2, 2, imageA), s.newSet("a", 3, 2, imageB), []int{0, 2}
		}
		s.settled(first)
		theirs := s.versions()
		s.Create(later)
		s.awaitTold(later.Name, nameConflict, "a-1")
		for _, index := range ready {
			s.awaitGroupReady(later, index)
		}
		s.unharmed(theirs)
		s.Remove(first)
		s.awaitSettled(later)
		s.awaitTold(later.Name, nameConflict, "")
	})
}

// A foreign object under a name that the set needs is never written. Groups that do
// not need the name become ready.
func TestForeignObjectsAreNeverTouched(t *testing.T) {
	type row struct {
		foreign  client.Object
		replicas int32
		ready    []int
		edits    []edit
		service  string // that the set makes once its name is free
	}
	each(t, map[string]row{
		"leader StatefulSet": {foreign: foreignStatefulSet("a"), replicas: 2},
		"worker StatefulSet": {foreign: foreignStatefulSet("a-1"), replicas: 3, ready: []int{0, 2}},
		"Deployment":         {foreign: foreignDeployment("a"), replicas: 2, edits: []edit{withKeys}},
		"shared Service":     {foreign: foreignService("a"), replicas: 2, ready: []int{0, 1}, service: "a"},
		"Service of a group": {foreign: foreignService("a-1"), replicas: 2, ready: []int{0}, edits: []edit{uniquePerReplica}, service: "a-1"},
		// It stops the StatefulSet controller at its batch, which ends with a-2.
		"leader pod": {
			foreign:  &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a-1"}, Spec: template(imageB).Spec},
			replicas: 4, ready: []int{0, 2},
		},
		"leader pod of a set with PVCs": {
			foreign:  &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a-1"}, Spec: template(imageB).Spec},
			replicas: 4, ready: []int{0, 2}, edits: []edit{volumes(keepClaims, keepClaims)},
		},
	}, func(s *scene, c row) {
		foreign := s.squat(c.foreign)
		set := s.newSet("a", c.replicas, 2, imageA, c.edits...)
		s.Create(set)
		s.awaitTold(set.Name, nameConflict, foreign.GetName())
		for _, index := range c.ready {
			s.awaitGroupReady(set, index)
		}
		s.heals(set, foreign)
		if c.service != "" {
			s.Until("the set has its own service "+c.service, func() bool {
				service := s.Service(c.service)
				return service != nil && s.Root(service.UID) == set.UID
			})
		}
	})
}

// foreignStatefulSet belongs to no set, and has no pods.
func foreignStatefulSet(name string) *appsv1.StatefulSet {
	labels := map[string]string{"app": "another"}
	pods := template(imageB)
	pods.Labels = labels
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32), ServiceName: name,
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pods},
	}
}

func foreignDeployment(name string) *appsv1.Deployment {
	sts := foreignStatefulSet(name)
	return &appsv1.Deployment{ObjectMeta: sts.ObjectMeta, Spec: appsv1.DeploymentSpec{
		Replicas: sts.Spec.Replicas, Selector: sts.Spec.Selector, Template: sts.Spec.Template,
	}}
}

func foreignService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "another"}},
	}
}

// squat creates a foreign object and waits until the controller of its kind is done with it.
func (s *scene) squat(o client.Object) client.Object {
	o.SetNamespace(s.Namespace)
	s.Create(o)
	s.Eventually("the foreign object is at rest", func() error {
		switch now := s.Now(o).(type) {
		case nil:
			return drill.ErrStill
		case *appsv1.StatefulSet:
			if now.Status.ObservedGeneration != now.Generation || now.Status.CurrentRevision == "" {
				return drill.ErrStill
			}
		case *appsv1.Deployment:
			complete := func(c appsv1.DeploymentCondition) bool { return c.Reason == "NewReplicaSetAvailable" }
			return drill.Lacking("complete", true, slices.ContainsFunc(now.Status.Conditions, complete))
		case *corev1.Pod:
			if !drill.PodReady(now) {
				return drill.ErrStill
			}
		}
		return nil
	})
	return s.Now(o)
}

// heals checks that a foreign object was never written, deletes it, and waits for the
// set to take the name.
func (s *scene) heals(set *lwsv1.LeaderWorkerSet, foreign client.Object) {
	now := s.Now(foreign)
	expect.Must(s, now != nil && now.GetResourceVersion() == foreign.GetResourceVersion(),
		"the foreign object was written: was %v, is %v", foreign, now)
	resource := strings.ToLower(s.Of(foreign.GetUID()).Kind) + "s"
	for _, w := range s.LockstepWrote(s.Audited) {
		refused := w.Verb == "create" && w.Code == http.StatusConflict // the first write finds the name taken
		if w.Name == foreign.GetName() && w.Resource == resource && !refused {
			s.Fatalf("lockstep tried to write the foreign object: %s", w)
		}
	}
	s.Remove(foreign)
	s.awaitSettled(set)
	s.awaitTold(set.Name, nameConflict, "")
}

// versions returns the records of all objects.
func (s *scene) versions() []drill.Record {
	return s.Pick(func(r *drill.Record) bool { return r.Died == 0 && r.Kind != "Event" })
}

// unharmed checks that no write changed the spec of objects, or deleted them.
func (s *scene) unharmed(before []drill.Record) {
	for _, rec := range before {
		now := s.Now(rec.Last)
		if now == nil || now.GetGeneration() != rec.Last.GetGeneration() || now.GetDeletionTimestamp() != nil ||
			s.Root(now.GetUID()) != s.Root(rec.Last.GetUID()) || len(now.GetOwnerReferences()) != len(rec.Last.GetOwnerReferences()) {
			s.Fatalf("harmed: %s/%s", rec.Kind, rec.Last.GetName())
		}
	}
}

// An object belongs to a set by its chain of owners, not by its labels. An owner of the right name with
// another UID is another owner, and the garbage collector deletes its pods.
func TestForgedObjectsChangeNothing(t *testing.T) {
	s := asideScene(t)
	set := s.restful(s.newSet("a", 2, 2, imageA))
	leader := s.Pod("a-0")
	worker := s.Pod("a-0-1")
	foreign := s.squat(foreignStatefulSet("foreign"))
	before, since := s.versions(), bed.Position()

	otherOwner := ownerOf(s.StatefulSet("a-0"), "apps/v1", "StatefulSet")
	otherOwner[0].UID = "00000000-0000-0000-0000-000000000000"
	collected := forgedPod(worker, "forged-0-9", otherOwner)
	collected.Namespace = s.Namespace
	key := leader.Labels[lwsv1.RevisionKey]
	revision := &appsv1.ControllerRevision{ // with the key of the set's revision and other data
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("a-%s-99", key), Labels: map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.RevisionKey: key}},
		Data:       runtime.RawExtension{Raw: []byte(`{"spec":{"leaderWorkerTemplate":{"$patch":"replace","size":9}}}`)},
		Revision:   99,
	}
	workers := foreignStatefulSet("forged-workers") // with the labels of a worker StatefulSet
	workers.Labels = maps.Clone(s.StatefulSet("a-0").Labels)
	s.Create(collected)
	forged := []client.Object{
		s.squat(forgedPod(leader, "forged-7", nil)),
		s.squat(forgedPod(worker, "forged-0-7", nil)),
		s.letGo(s.squat(forgedPod(worker, "forged-0-8", ownerOf(foreign, "apps/v1", "StatefulSet")))),
		s.squat(revision),
		s.squat(workers),
	}
	s.Until("the garbage collector takes the pod of another owner", func() bool { return s.Of(collected.UID).Died != 0 })
	outlast(t)
	s.silent(since)
	for _, o := range forged {
		if now := s.Now(o); now == nil || now.GetResourceVersion() != o.GetResourceVersion() {
			t.Fatalf("forged %s was touched", drill.Outline(o))
		}
	}
	s.unharmed(before)

	// Nor does it mean anything when they fail, or go.
	mark := s.Changes()
	for _, o := range forged {
		s.Remove(o)
	}
	outlast(t)
	s.silent(since)
	s.unharmed(before)
	born := s.bornInto(set.UID, mark)
	expect.Must(t, born == (births{}), "created because forged objects went: %+v", born)
	s.awaitSettled(set)
}

// letGo waits until the StatefulSet controller has released a pod that its owner does not select.
func (s *scene) letGo(pod client.Object) client.Object {
	s.Eventually("the foreign statefulset lets go of "+pod.GetName(), func() error {
		return drill.Lacking("owners", 0, len(s.Now(pod).GetOwnerReferences()))
	})
	return s.Now(pod)
}

// forgedPod has the labels and annotations of an owned pod, without its owners.
func forgedPod(member *corev1.Pod, name string, owners []metav1.OwnerReference) *corev1.Pod {
	spec := template(imageB).Spec
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners,
			Labels: maps.Clone(member.Labels), Annotations: maps.Clone(member.Annotations)},
		Spec: spec,
	}
}
