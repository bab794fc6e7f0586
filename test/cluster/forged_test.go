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

// Labels are not what makes a member: the chain of owners is, by UID.
func TestForgedObjectsChangeNothing(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.restful(s.newSet("a", 2, 2, imageA))
	leader, _ := find[*corev1.Pod](s.recorder, "a-0")
	worker, _ := find[*corev1.Pod](s.recorder, "a-0-1")
	foreign := s.squat(foreignStatefulSet("foreign"))
	before, since := s.versions(), bed.audit.position()

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

// An owner that bears the right name under another UID is another owner. The
// garbage collector takes such pods, and nobody else.
func TestForgedOwnerUIDChangesNothing(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.restful(s.newSet("a", 2, 2, imageA))
	worker, _ := find[*corev1.Pod](s.recorder, "a-0-1")
	before, since := s.versions(), bed.audit.position()

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

// letGo waits until the StatefulSet controller has let go of a pod that its owner
// does not select.
func (s *scene) letGo(pod client.Object) client.Object {
	s.Helper()
	s.eventually("the foreign statefulset lets go of "+pod.GetName(), func() error {
		return lacking("owners", 0, len(s.now(pod).GetOwnerReferences()))
	})
	return s.now(pod)
}

// forgedPod bears all a member bears, but the chain.
func forgedPod(member *corev1.Pod, name string, owners []metav1.OwnerReference) *corev1.Pod {
	spec := template(imageB).Spec
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners,
			Labels: maps.Clone(member.Labels), Annotations: maps.Clone(member.Annotations)},
		Spec: spec,
	}
}

// forgedRevision claims to be what the set runs, and says something else.
func forgedRevision(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) *appsv1.ControllerRevision {
	key := leader.Labels[lwsv1.RevisionKey]
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-99", set.Name, key),
			Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key}},
		Data:     runtime.RawExtension{Raw: []byte(`{"spec":{"leaderWorkerTemplate":{"$patch":"replace","size":9}}}`)},
		Revision: 99,
	}
}

// forgedWorkers bears the labels of a group's workers, under a name of its own.
func forgedWorkers(leader *corev1.Pod) *appsv1.StatefulSet {
	sts := foreignStatefulSet("forged-workers")
	sts.Labels = map[string]string{}
	for _, key := range []string{lwsv1.SetNameLabelKey, lwsv1.GroupIndexLabelKey, lwsv1.GroupUniqueHashLabelKey, lwsv1.RevisionKey} {
		sts.Labels[key] = leader.Labels[key]
	}
	return sts
}

// controlledBy is an owner reference to an object, whatever its kind says.
func controlledBy(kind string, owner client.Object) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}}
}
