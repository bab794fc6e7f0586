package cluster

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/standin"
)

// Images that tell pods apart. No node pulls them.
const (
	imageA = "registry.example/serve:a"
	imageB = "registry.example/serve:b"
)

// edit changes a set before it is created.
type edit func(*lwsv1.LeaderWorkerSet)

// newSet returns a set with one container per pod. All groups may be unavailable during an update.
func newSet(namespace, name string, replicas, size int32, image string, edits ...edit) *lwsv1.LeaderWorkerSet {
	set := drill.NewSet(namespace, name, replicas, size, template(image).Spec)
	rolling := lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromString("100%")}
	set.Spec.RolloutStrategy = lwsv1.RolloutStrategy{Type: lwsv1.RollingUpdateStrategyType, RollingUpdateConfiguration: &rolling}
	together(edits...)(set)
	return set
}

// together makes all changes that are there.
func together(all ...edit) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		for _, change := range all {
			if change != nil {
				change(set)
			}
		}
	}
}

func (s *scene) newSet(name string, replicas, size int32, image string, edits ...edit) *lwsv1.LeaderWorkerSet {
	return newSet(s.Namespace, name, replicas, size, image, edits...)
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "serve", Image: image}}}}
}

// uniquePerReplica gives every group a Service of its own.
func uniquePerReplica(set *lwsv1.LeaderWorkerSet) {
	policy := lwsv1.SubdomainUniquePerReplica
	set.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &policy}
}

func imageOf(pod *corev1.Pod) string { return pod.Spec.Containers[0].Image }

// A first incarnation has everything that users and other implementations read.
func TestObjectsOfASet(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 3, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Labels = map[string]string{"team": "blue"}
		set.Annotations = map[string]string{"note": "mine"}
		leader := template(imageA)
		leader.Labels = map[string]string{"role": "leader"}
		leader.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "ADDRESS", Value: "$(LWS_LEADER_ADDRESS)"}, {Name: lwsv1.LwsGroupSize, Value: "overridden"}}
		leader.Spec.InitContainers = []corev1.Container{{Name: "load", Image: imageA}}
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = nil
	}))
	key := s.revision(set).Labels[lwsv1.RevisionKey]

	t.Run("leader statefulset", func(t *testing.T) { s.alike(t, s.StatefulSet("a"), standin.Leaders(set, key, 0, 2, nil)) })
	t.Run("worker statefulsets", func(t *testing.T) {
		s.alike(t, s.StatefulSet("a-0"), standin.Workers(set, s.Pod("a-0"), ""))
		s.alike(t, s.StatefulSet("a-1"), standin.Workers(set, s.Pod("a-1"), ""))
	})
	t.Run("pods", func(t *testing.T) { s.pods(t, set, key) })
	t.Run("revision", func(t *testing.T) {
		revision := s.revision(set)
		same(t, "name", fmt.Sprintf("a-%s-1", key), revision.Name)
		same(t, "labels", map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.RevisionKey: key}, revision.Labels)
		same(t, "owner", ownerOf(set, lwsv1.GroupVersion.String(), "LeaderWorkerSet"), revision.OwnerReferences)
		same(t, "revision", 1, revision.Revision)
	})
	t.Run("status", func(t *testing.T) { s.status(t, set) })
	t.Run("events", func(t *testing.T) { s.firstEvents(t, set, key) })
	t.Run("service", func(t *testing.T) {
		service := s.Service("a")
		headless(t, service, ownerOf(set, lwsv1.GroupVersion.String(), "LeaderWorkerSet"), map[string]string{lwsv1.SetNameLabelKey: "a"})
		s.reborn(set, service)
	})
	t.Run("a status that others wrote is repaired", func(*testing.T) { s.repaired(set) })
	s.wantBorn(set.UID, 0, births{Pods: 6, StatefulSets: 3, Services: 2, Revisions: 1})
}

// alike checks that a StatefulSet is that of another implementation, with the API server's defaults.
func (s *scene) alike(t *testing.T, have, want *appsv1.StatefulSet) {
	t.Helper()
	want.ResourceVersion = have.ResourceVersion
	want.Labels[lwsv1.RoleLabelKey] = lwsv1.LeaderRole // new objects have what 0.11 added
	if leader := want.Spec.Template.Annotations[lwsv1.LeaderPodNameAnnotationKey]; leader != "" {
		want.Labels[lwsv1.RoleLabelKey] = lwsv1.WorkerRole
		want.Spec.Template.Annotations[lwsv1.LeaderAddressAnnotationKey] = leader + "." + want.Spec.ServiceName + "." + want.Namespace
	}
	s.Check("have the API server set defaults", s.Client.Update(t.Context(), want, client.DryRunAll))
	same(t, "labels", want.Labels, have.Labels)
	same(t, "annotations", part(want.Annotations, "lockstep.dev/", false), part(have.Annotations, "lockstep.dev/", false))
	same(t, "owner", want.OwnerReferences, have.OwnerReferences)
	same(t, "spec", want.Spec, have.Spec)
}

func (s *scene) pods(t *testing.T, set *lwsv1.LeaderWorkerSet, key string) {
	for index := range 2 {
		leader := fmt.Sprintf("a-%d", index)
		for worker := range 3 {
			name := leader
			if worker > 0 {
				name = fmt.Sprintf("%s-%d", leader, worker)
			}
			pod := s.Pod(name)
			expect.Must(t, pod != nil, "there is no pod %s", name)
			same(t, name+" labels", map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.GroupIndexLabelKey: strconv.Itoa(index),
				lwsv1.WorkerIndexLabelKey: strconv.Itoa(worker), lwsv1.GroupUniqueHashLabelKey: fmt.Sprintf("%x", sha1.Sum([]byte(s.Namespace+"/"+leader))), lwsv1.RevisionKey: key},
				part(pod.Labels, "leaderworkerset.sigs.k8s.io/", true))
			same(t, name+" size", "3", pod.Annotations[lwsv1.SizeAnnotationKey])
			same(t, name+" subdomain", "a", pod.Spec.Subdomain)
			same(t, name+" hostname", name, pod.Spec.Hostname)
			same(t, name+" root", set.UID, s.Root(pod.UID))
			s.environment(t, pod, index, worker)
		}
	}
}

// environment checks that the variables of Lockstep come first and replace those of users.
func (s *scene) environment(t *testing.T, pod *corev1.Pod, index, worker int) {
	want := []corev1.EnvVar{
		{Name: lwsv1.LwsLeaderAddress, Value: fmt.Sprintf("a-%d.a.%s", index, s.Namespace)},
		{Name: lwsv1.LwsGroupSize, Value: "3"},
		{Name: lwsv1.LwsWorkerIndex, Value: strconv.Itoa(worker)},
	}
	for _, c := range pod.Spec.InitContainers {
		same(t, pod.Name+" env of "+c.Name, want, c.Env)
	}
	if worker == 0 {
		want = append(want, corev1.EnvVar{Name: "ADDRESS", Value: "$(LWS_LEADER_ADDRESS)"})
	}
	same(t, pod.Name+" env", want, pod.Spec.Containers[0].Env)
}

// status checks the status of a settled set. Conditions that no longer hold stay.
func (s *scene) status(t *testing.T, set *lwsv1.LeaderWorkerSet) {
	same(t, "hpaPodSelector", "leaderworkerset.sigs.k8s.io/name=a,leaderworkerset.sigs.k8s.io/worker-index=0", set.Status.HPAPodSelector)
	have := map[string]string{}
	for _, c := range set.Status.Conditions {
		have[c.Type] = string(c.Status) + " " + c.Reason
		same(t, "observedGeneration of "+c.Type, set.Generation, c.ObservedGeneration)
	}
	same(t, "conditions", map[string]string{"Available": "True AllGroupsReady", "Progressing": "False NoGroupsProgressing", "Ready": "True AllGroupsReady"}, have)
}

// repaired writes or removes the status. The operator repairs it.
func (s *scene) repaired(set *lwsv1.LeaderWorkerSet) {
	for what, status := range map[string]string{
		"numbers":   `{"status":{"readyReplicas":7,"updatedReplicas":null}}`,
		"condition": `{"status":{"conditions":[{"type":"Available","status":"False","reason":"No","message":"no","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		"all of it": `{"status":null}`,
	} {
		s.PatchStatus(set, status)
		s.Eventually(what+": it is put right", func() error {
			now := &lwsv1.LeaderWorkerSet{}
			if err := s.Get(set.Name, now); err != nil {
				return err
			}
			if now.Status.ReadyReplicas != 2 || now.Status.UpdatedReplicas != 2 || !meta.IsStatusConditionTrue(now.Status.Conditions, "Available") {
				return drill.ErrStill
			}
			return nil
		})
	}
}

// firstEvents checks the events of a set that becomes available.
func (s *scene) firstEvents(t *testing.T, set *lwsv1.LeaderWorkerSet, key string) {
	s.AwaitEvent("a", "CreatingRevision", "ControllerRevision", "Create", key)
	s.AwaitEvent("a", "GroupsProgressing", "ControllerRevision", "Create", "leader statefulset a")
	s.AwaitEvent("a", "GroupsProgressing", "Pod", "Create", "a-0")
	s.AwaitEvent("a", "GroupsProgressing", "Pod", "Create", "a-1")
	s.AwaitEvent("a", "GroupsProgressing", "Update", "0 groups ready of total 2 groups")
	s.AwaitEvent("a", "AllGroupsReady", "Update", "2 groups ready of total 2 groups")
	for _, event := range s.Events(set, "") {
		same(t, "type of "+event.Reason, "Normal", event.Type)
		same(t, "field of "+event.Reason, "", event.Regarding.FieldPath)
		same(t, "reporting controller of "+event.Reason, "leaderworkerset", event.ReportingController)
	}
}

// revisions returns the ControllerRevisions of a set.
func (s *scene) revisions(set *lwsv1.LeaderWorkerSet) []*appsv1.ControllerRevision {
	return slices.DeleteFunc(drill.Live[*appsv1.ControllerRevision](s.Recorder), func(r *appsv1.ControllerRevision) bool {
		return !metav1.IsControlledBy(r, set)
	})
}

// revision returns the only ControllerRevision of a set.
func (s *scene) revision(set *lwsv1.LeaderWorkerSet) *appsv1.ControllerRevision {
	found := s.revisions(set)
	if len(found) != 1 {
		s.Fatalf("set %s has %d revisions, want 1", set.Name, len(found))
	}
	return found[0]
}

func ownerOf(o client.Object, apiVersion, kind string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes}}
}

// part returns the keys that begin with a prefix, or the others.
func part(all map[string]string, prefix string, begin bool) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool { return strings.HasPrefix(key, prefix) != begin })
	return out
}

// A settled set costs no write, whatever changes beside it.
func TestSettledSetIsNotWritten(t *testing.T) {
	s := asideScene(t)
	s.restful(s.newSet("a", 3, 3, imageA, uniquePerReplica))
	ones := s.restful(s.newSet("b", 2, 1, imageA)) // a group of one is its leader alone
	s.wantBorn(ones.UID, 0, births{Pods: 2, StatefulSets: 1, Services: 1, Revisions: 1})
	since := bed.Position()
	for round := range 3 {
		for _, o := range s.versions() {
			if o.Kind == "Pod" || o.Kind == "StatefulSet" || o.Kind == "Service" {
				s.Patch(o.Last, fmt.Sprintf(`{"metadata":{"annotations":{"test.lockstep.dev/touched":"%d"}}}`, round))
			}
		}
		outlast(t)
	}
	s.silent(since)
}

// restful creates a set and waits until no write is left. Counts may be written after conditions.
func (s *scene) restful(set *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	s.Create(set)
	now := s.awaitSettled(set)
	outlast(s.T)
	return now
}

// outlast returns when the operator has handled a set that was created now, and so all earlier events.
func outlast(t *testing.T) {
	t.Helper()
	s := newScene(t)
	set := s.settled(s.newSet("canary", 1, 2, imageA))
	s.Remove(set)
	s.awaitNothing(set.UID)
}

// silentAfterARestart restarts the operator once it holds no count of the scene's sets back, for 8 s at most, and checks
// that the next one writes nothing.
func (s *scene) silentAfterARestart() {
	s.Until("no count is held back", func() bool {
		wrote := s.LockstepWrote(0)
		return len(wrote) == 0 || time.Since(wrote[len(wrote)-1].Done) > 9*time.Second
	})
	again := bed.Position()
	s.RestartOperator()
	outlast(s.T)
	s.silent(again)
}

// silent checks that the operator wrote nothing in the scene since a position.
func (s *scene) silent(since int) {
	expect.Emptyf(s, s.LockstepWrote(since), "lockstep wrote though nothing had changed")
}
