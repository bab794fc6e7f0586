package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/expect"
)

// scene is a set in a namespace of its own.
type scene struct {
	*cluster
	actor *apply.Actor
	set   *lwsv1.LeaderWorkerSet
}

func newScene(c *cluster) *scene {
	c.t.Helper()
	s := &scene{cluster: c, actor: apply.New(c, c)}
	s.set = newSet(s.namespace(), "llama")
	s.set.Labels = map[string]string{"team": "red"}
	s.set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers = []corev1.Container{{
		Name: "w", Image: "w:1", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
		VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
	}}
	s.set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Volumes = []corev1.Volume{{
		Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	}}
	s.create(s.set)
	return s
}

// planned returns the action of one type that the plan for the set and its StatefulSet has for the StatefulSet.
func planned[A action.Action](s *scene, owned ...*appsv1.StatefulSet) A {
	s.t.Helper()
	plan := lwsset.Decide(lws.SetSnapshot{
		Set: s.set, HistoryRead: true, Now: time.Now(), StatefulSet: identity.Claim[*appsv1.StatefulSet]{Owned: owned},
	})
	for _, a := range plan.Actions {
		if found, ok := a.(A); ok && a.Target().Kind == identity.KindStatefulSet {
			return found
		}
	}
	var none A
	s.t.Fatalf("the plan has no %T: %+v", none, plan)
	return none
}

func (s *scene) do(a action.Action) error {
	_, err := s.actor.Do(s.t.Context(), a)
	return err
}

func (s *scene) statefulSet() *appsv1.StatefulSet {
	s.t.Helper()
	sts := &appsv1.StatefulSet{}
	s.read(sts, s.set.Namespace, s.set.Name)
	return sts
}

func TestApplyOntoAChangedObjectIsStale(t *testing.T) {
	tests := map[string]func(*scene, *appsv1.StatefulSet, *action.Apply){
		"changed since": func(s *scene, sts *appsv1.StatefulSet, _ *action.Apply) {
			sts.Annotations["example.com/note"] = "mine"
			s.must(s.Update(t.Context(), sts))
		},
		"another incarnation": func(_ *scene, _ *appsv1.StatefulSet, a *action.Apply) { a.Onto.UID = types.UID("another") },
		"gone":                func(s *scene, sts *appsv1.StatefulSet, _ *action.Apply) { s.must(s.Delete(t.Context(), sts)) },
	}
	c := withDefinition(t)
	for name, spoil := range tests {
		c.part(name, func() {
			s, t := newScene(c), c.t
			s.must(s.do(planned[action.Create](s)))
			sts := s.statefulSet()
			s.set.Spec.Replicas = new(int32(7))
			onto := planned[action.Apply](s, sts)
			spoil(s, sts, &onto)
			if err := s.do(onto); !errors.Is(err, apply.ErrStale) {
				t.Fatalf("got error %v, want apply.ErrStale", err)
			}
			after := &appsv1.StatefulSet{}
			err := s.Get(t.Context(), client.ObjectKeyFromObject(s.set), after)
			expect.That(t, name != "gone" || apierrors.IsNotFound(err), "the apply brought the StatefulSet back: %v", err)
			expect.That(t, err != nil || *after.Spec.Replicas != 7, "the apply went through")
		})
	}
}

// An apply removes fields that the set no longer has. A POST of an earlier version or of another
// implementation may have made them.
func TestApplyRemovesDroppedFields(t *testing.T) {
	c := withDefinition(t)
	for name, post := range map[string]bool{"created by an apply": false, "created by a POST": true} {
		c.part(name, func() {
			s := newScene(c)
			created := planned[action.Create](s)
			if post {
				s.must(s.Create(s.t.Context(), created.Object.DeepCopyObject().(client.Object), client.FieldOwner(lws.FieldOwner)))
			} else {
				s.must(s.do(created))
			}
			s.mustRemoveFields(s.statefulSet())
		})
	}
}

// mustRemoveFields applies a set without a label and a variable that its StatefulSet has.
func (s *scene) mustRemoveFields(sts *appsv1.StatefulSet) {
	s.t.Helper()
	s.set.Labels = nil
	container := &s.set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0]
	container.Env = container.Env[1:]
	s.must(s.do(planned[action.Apply](s, sts)))
	after := s.statefulSet()
	team, there := after.Labels["team"]
	expect.That(s.t, !there, "label team=%s is still there", team)
	want := []corev1.EnvVar{{Name: "B", Value: "2"}}
	diff := cmp.Diff(want, after.Spec.Template.Spec.Containers[0].Env)
	expect.That(s.t, diff == "", "environment (-want +got):\n%s", diff)
	expect.That(s.t, after.Spec.Template.Spec.Volumes[0].EmptyDir != nil, "the volume has no emptyDir now")
	expect.That(s.t, after.UID == sts.UID, "the StatefulSet was recreated")
	for _, entry := range after.ManagedFields {
		if entry.Manager == lws.FieldOwner && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" {
			s.t.Error("the create still owns fields")
		}
	}
}

// No generator made an apply configuration of a set. The API server takes one that another object owns, removes fields that
// a later apply drops, and lets another manager own the replicas alone.
func TestASetThatHasAnOwnerIsApplied(t *testing.T) {
	s := newScene(withDefinition(t))
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.set.Namespace, Name: "owner"}}
	s.create(owner)
	wanted := newSet(s.set.Namespace, "decode")
	wanted.Labels, wanted.Spec.Replicas = map[string]string{"team": "red"}, new(int32(2))
	wanted.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	}}
	s.must(s.do(action.Create{Kind: identity.KindLeaderWorkerSet, Object: wanted, Owner: identity.RefOf("ConfigMap", owner)}))
	made := func() (*lwsv1.LeaderWorkerSet, identity.Ref) {
		t.Helper()
		set := &lwsv1.LeaderWorkerSet{}
		s.read(set, wanted.Namespace, wanted.Name)
		return set, identity.RefOf(identity.KindLeaderWorkerSet, set)
	}
	_, ref := made()
	part := &lwsv1.LeaderWorkerSet{Spec: lwsv1.LeaderWorkerSetSpec{Replicas: new(int32(5))}}
	s.must(s.do(action.Apply{Object: part, Onto: ref, FieldOwner: lws.ScaleFieldOwner}))
	_, ref = made()
	wanted.Labels, wanted.Spec.Replicas = nil, nil
	wanted.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = "i:2"
	s.must(s.do(action.Apply{Object: wanted, Onto: ref, FieldOwner: lws.FieldOwner, Applied: true}))
	set, ref := made()
	team, there := set.Labels["team"]
	expect.That(t, !there, "label team=%s is still there", team)
	expect.That(t, *set.Spec.Replicas == 5 && set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image == "i:2", "got %+v", set.Spec)
	status := &lwsv1.LeaderWorkerSet{Status: lwsv1.LeaderWorkerSetStatus{Replicas: 3}}
	s.must(s.do(action.WriteStatus{Object: ref, Status: status}))
	set, ref = made()
	expect.That(t, set.Status.Replicas == 3 && *set.Spec.Replicas == 5, "got %+v, %+v", set.Spec, set.Status)
	s.must(s.do(action.Delete{Object: ref}))
}
