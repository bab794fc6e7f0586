package cluster

import (
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// An object belongs to a set by its chain of owners, not by its labels.
func TestForgedObjectsChangeNothing(t *testing.T) {
	s := asideScene(t)
	set := s.restful(s.newSet("a", 2, 2, imageA))
	leader, _ := find[*corev1.Pod](s.recorder, "a-0")
	worker, _ := find[*corev1.Pod](s.recorder, "a-0-1")
	foreign := s.squat(foreignStatefulSet("foreign"))
	before, since := s.versions(), bed.position()

	forged := []client.Object{
		s.squat(forgedPod(leader, "forged-7", nil)),
		s.squat(forgedPod(worker, "forged-0-7", nil)),
		s.letGo(s.squat(forgedPod(worker, "forged-0-8", controlledBy("StatefulSet", foreign)))),
		s.squat(forgedRevision(set, leader)),
		s.squat(forgedWorkers(leader)),
	}
	outlast(t)
	s.silent(since)
	for _, o := range forged {
		if now := s.now(o); now == nil || now.GetResourceVersion() != o.GetResourceVersion() {
			s.dump()
			t.Fatalf("forged %s was touched", outline(o))
		}
	}
	s.unharmed(before)

	// Nor does it mean anything when they fail, or go.
	mark := s.changes()
	for _, o := range forged {
		s.remove(o.DeepCopyObject().(client.Object))
	}
	outlast(t)
	s.silent(since)
	s.unharmed(before)
	if born := s.bornInto(set.UID, mark); born != (births{}) {
		s.dump()
		t.Fatalf("created because forged objects went: %+v", born)
	}
}

// An owner of the right name with another UID is another owner. The garbage collector deletes its pods.
func TestForgedOwnerUIDChangesNothing(t *testing.T) {
	s := asideScene(t)
	set := s.restful(s.newSet("a", 2, 2, imageA))
	worker, _ := find[*corev1.Pod](s.recorder, "a-0-1")
	before, since := s.versions(), bed.position()

	sts, _ := find[*appsv1.StatefulSet](s.recorder, "a-0")
	owner := controlledBy("StatefulSet", sts)
	owner[0].UID = "00000000-0000-0000-0000-000000000000"
	pod := forgedPod(worker, "forged-0-9", owner)
	pod.Namespace = s.namespace
	s.create(pod)
	s.eventually("the garbage collector takes the pod", func() error {
		if _, there := find[*corev1.Pod](s.recorder, pod.Name); there {
			return fmt.Errorf("pod %s is there", pod.Name)
		}
		return nil
	})
	outlast(t)
	s.silent(since)
	s.unharmed(before)
	s.check("the set", s.unsettled(set))
}

// letGo waits until the StatefulSet controller has released a pod that its owner does not select.
func (s *scene) letGo(pod client.Object) client.Object {
	s.Helper()
	s.eventually("the foreign statefulset lets go of "+pod.GetName(), func() error {
		return lacking("owners", 0, len(s.now(pod).GetOwnerReferences()))
	})
	return s.now(pod)
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

// forgedRevision has the key of the set's revision, with other data.
func forgedRevision(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) *appsv1.ControllerRevision {
	key := leader.Labels[lwsv1.RevisionKey]
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-99", set.Name, key),
			Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key}},
		Data:     runtime.RawExtension{Raw: []byte(`{"spec":{"leaderWorkerTemplate":{"$patch":"replace","size":9}}}`)},
		Revision: 99,
	}
}

// forgedWorkers has the labels of a worker StatefulSet, under another name.
func forgedWorkers(leader *corev1.Pod) *appsv1.StatefulSet {
	sts := foreignStatefulSet("forged-workers")
	sts.Labels = map[string]string{}
	for _, key := range []string{lwsv1.SetNameLabelKey, lwsv1.GroupIndexLabelKey, lwsv1.GroupUniqueHashLabelKey, lwsv1.RevisionKey} {
		sts.Labels[key] = leader.Labels[key]
	}
	return sts
}

// controlledBy returns an owner reference to an object.
func controlledBy(kind string, owner client.Object) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}}
}
