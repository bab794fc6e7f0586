package cluster

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// roleOf is a role of a number of groups, with one surge group.
func (s *scene) roleOf(name string, replicas, size int32, image string, edits ...edit) dsv1.DisaggregatedRole {
	set := s.newSet(name, replicas, size, image, edits...)
	set.Spec.RolloutStrategy.RollingUpdateConfiguration = nil
	return dsv1.DisaggregatedRole{Name: name, Spec: set.Spec}
}

func (s *scene) rolesSet(name string, roles ...dsv1.DisaggregatedRole) *dsv1.DisaggregatedSet {
	return &dsv1.DisaggregatedSet{ObjectMeta: s.Meta(name), Spec: dsv1.DisaggregatedSetSpec{Roles: roles}}
}

// settledRoles creates a set, and waits until it is available.
func (s *scene) settledRoles(set *dsv1.DisaggregatedSet) *dsv1.DisaggregatedSet {
	s.Helper()
	s.Create(set)
	return s.awaitRoles(set)
}

// changeRoles changes a set, and returns it as the API server has it.
func (s *scene) changeRoles(name string, change func(*dsv1.DisaggregatedSet)) *dsv1.DisaggregatedSet {
	s.Helper()
	set := &dsv1.DisaggregatedSet{ObjectMeta: s.Meta(name)}
	s.Eventually("change "+name, func() error {
		if err := s.Client.Get(s.Context(), s.Key(name), set); err != nil {
			return err
		}
		change(set)
		return s.Client.Update(s.Context(), set)
	})
	return set
}

// rolesRun gives all roles an image.
func rolesRun(image string) func(*dsv1.DisaggregatedSet) {
	return func(set *dsv1.DisaggregatedSet) {
		for i := range set.Spec.Roles {
			set.Spec.Roles[i].Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = image
		}
	}
}

// awaitRoles waits until a set is available as it is now, and has one child for each role and slice.
func (s *scene) awaitRoles(want *dsv1.DisaggregatedSet) *dsv1.DisaggregatedSet {
	s.Helper()
	children := len(want.Spec.Roles) * int(max(1, ptrOr(want.Spec.Slices, 1)))
	return drill.Await(s.Scene, want.Name, "the set is available", func(set *dsv1.DisaggregatedSet) error {
		found := s.childrenOf(set)
		switch {
		case set.UID != want.UID || set.Generation < want.Generation || set.Status.ObservedGeneration != set.Generation:
			return fmt.Errorf("generation %d of %s, observed %d, want %d", set.Generation, set.UID, set.Status.ObservedGeneration, want.Generation)
		case !meta.IsStatusConditionTrue(set.Status.Conditions, dsv1.ConditionAvailable):
			return fmt.Errorf("conditions %v, roles %v, groups %v", set.Status.Conditions, set.Status.RoleStatuses, s.holding())
		case len(found) != children:
			return fmt.Errorf("children %v, want %d", found, children)
		}
		return nil
	})
}

func ptrOr(value *int32, otherwise int32) int32 {
	if value == nil {
		return otherwise
	}
	return *value
}

// childrenOf are the names of the children that a set owns.
func (s *scene) childrenOf(set *dsv1.DisaggregatedSet) (names []string) {
	for _, child := range drill.Live[*lwsv1.LeaderWorkerSet](s.Recorder) {
		if metav1.IsControlledBy(child, set) {
			names = append(names, child.Name)
		}
	}
	slices.Sort(names)
	return names
}

// holding counts, by role, the groups whose pods hold nodes, terminating ones too.
func (s *scene) holding() map[string]int {
	groups := map[string]map[string]bool{}
	for _, pod := range s.Pods() {
		role := pod.Labels[dsv1.RoleLabelKey]
		if role == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if groups[role] == nil {
			groups[role] = map[string]bool{}
		}
		groups[role][pod.Labels[lwsv1.SetNameLabelKey]+"/"+pod.Labels[lwsv1.GroupIndexLabelKey]] = true
	}
	counts := map[string]int{}
	for role, keys := range groups {
		counts[role] = len(keys)
	}
	return counts
}

// pairs is what the pods of a set did meanwhile, by role, and how far roles were apart beyond one group since they were
// level first.
type pairs struct {
	most, least map[string]int
	uneven      float64
	seen        string // when they were apart most
	isLevel     bool
}

// watching follows the groups that hold nodes, ready ones of revisions that have a ready group of each role, and how level
// the roles are.
func (s *scene) watching() (end func() pairs) {
	w := pairs{most: map[string]int{}, least: map[string]int{}}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			next := s.Next()
			for role, n := range s.holding() {
				w.most[role] = max(w.most[role], n)
			}
			for role, n := range s.serving() {
				if least, known := w.least[role]; !known || n < least {
					w.least[role] = n
				}
			}
			if apart := s.uneven(); apart <= 0 {
				w.isLevel = true
			} else if w.isLevel && apart > w.uneven {
				w.uneven, w.seen = apart, s.counts()
			}
			select {
			case <-done:
				return
			case <-next:
			}
		}
	}()
	return func() pairs {
		close(done)
		<-ended
		return w
	}
}

// keep checks that at least so many groups of each role were ready in complete revisions, and that at most so many held nodes.
func (w pairs) keep(t *testing.T, least, most map[string]int) {
	t.Helper()
	for role := range least {
		expect.That(t, w.least[role] >= least[role], "%s: %d groups of complete revisions were ready, want at least %d", role, w.least[role], least[role])
		expect.That(t, w.most[role] <= most[role], "%s: %d groups held nodes, want at most %d", role, w.most[role], most[role])
	}
}

// level checks that the roles were level, and stayed so.
func (w pairs) level(t *testing.T) {
	t.Helper()
	expect.That(t, w.isLevel && w.uneven == 0, "roles were level: %t, and later apart by %.3f beyond one group: %s", w.isLevel, w.uneven, w.seen)
}

// child is the LeaderWorkerSet of a role, and how many of its groups are ready.
type child struct {
	*lwsv1.LeaderWorkerSet
	ready int
}

// byRevision returns the children of each revision of a slice, by role.
func (s *scene) byRevision() map[disaggregated.Place]map[string]child {
	pods, all := map[[2]string]int{}, map[disaggregated.Place]map[string]child{}
	for _, pod := range s.Pods() {
		if pod.DeletionTimestamp == nil && drill.PodReady(pod) {
			pods[[2]string{pod.Labels[lwsv1.SetNameLabelKey], pod.Labels[lwsv1.GroupIndexLabelKey]}]++
		}
	}
	for _, set := range drill.Live[*lwsv1.LeaderWorkerSet](s.Recorder) {
		place, c := disaggregated.PlaceOf(set), child{LeaderWorkerSet: set}
		for group, n := range pods {
			if group[0] == set.Name && n >= int(*set.Spec.LeaderWorkerTemplate.Size) {
				c.ready++
			}
		}
		role := place.Role
		if place.Role = ""; all[place] == nil {
			all[place] = map[string]child{}
		}
		if role != "" {
			all[place][role] = c
		}
	}
	return all
}

// serving counts, by role, ready groups of revisions that have a ready group of each of their roles.
func (s *scene) serving() map[string]int {
	all := map[string]int{}
	for _, roles := range s.byRevision() {
		isComplete := !slices.ContainsFunc(slices.Collect(maps.Values(roles)), func(c child) bool { return c.ready == 0 })
		for role, c := range roles {
			all[role] += 0
			if isComplete {
				all[role] += c.ready
			}
		}
	}
	return all
}

// uneven says how far the roles of a slice are apart beyond one group of the smallest: those of the target, and those of
// all revisions in sum. Groups above what is wanted surge. While a group is not ready, or is one too many, it is no number.
func (s *scene) uneven() float64 {
	all, most := s.byRevision(), math.Inf(-1)
	for _, set := range drill.Live[*dsv1.DisaggregatedSet](s.Recorder) {
		target, err := disaggregated.RevisionOf(set.Spec.Roles)
		if err != nil {
			return math.NaN()
		}
		for slice := range disaggregated.Slices(set) {
			alone, fleet := window{1, 0, 0}, window{1, 0, 0}
			for _, role := range set.Spec.Roles {
				wanted, sum := s.groupsOf(set, &role), 0.0
				for place, roles := range all {
					c, has := roles[role.Name]
					switch {
					case place.Slice != slice:
					case !has || c.ready != int(*c.Spec.Replicas):
						return math.NaN()
					case place.Revision == target:
						alone.add(float64(c.ready)/wanted, 1/wanted)
						sum += float64(c.ready) / wanted
					default:
						intended := float64(disaggregated.Intended(c.LeaderWorkerSet))
						sum += float64(c.ready) / intended
						fleet.most = max(fleet.most, 1/intended)
					}
				}
				fleet.add(sum, 1/wanted)
			}
			most = max(most, alone.beyond(), fleet.beyond())
		}
	}
	return most
}

// groupsOf is how many groups a role is to have: as its scaler says, if it has one.
func (s *scene) groupsOf(set *dsv1.DisaggregatedSet, role *dsv1.DisaggregatedRole) float64 {
	for _, scaler := range drill.Live[*dsv1.DisaggregatedSetRoleScaler](s.Recorder) {
		if disaggregated.IsExternal(role) && scaler.Name == set.Name+"-"+role.Name {
			return float64(scaler.Spec.Replicas)
		}
	}
	return float64(ptrOr(role.Spec.Replicas, 1))
}

// window is the least and the greatest part of its groups that a role has, and how far they may be apart.
type window struct{ low, high, most float64 }

func (w *window) add(part, most float64) {
	w.low, w.high, w.most = min(w.low, part), max(w.high, min(1, part)), max(w.most, most)
}

func (w *window) beyond() float64 {
	const slack = 1e-9 // of fractions
	if w.high-w.low <= w.most+slack {
		return 0
	}
	return w.high - w.low - w.most
}

const lingers = "drill.lockstep.dev/lingers"

// lingering keeps the pods of a role for a while after they are deleted, as a grace period does.
func (s *scene) lingering(after time.Duration) edit {
	s.Cleanup(s.follow(func() {
		for _, pod := range s.Pods() {
			if pod.DeletionTimestamp != nil && slices.Contains(pod.Finalizers, lingers) && time.Since(pod.DeletionTimestamp.Time) > after {
				_ = s.Client.Patch(s.Context(), pod.DeepCopy(), drill.Merge(`{"metadata":{"finalizers":null}}`))
			}
		}
	}))
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Finalizers = []string{lingers}
	}
}

// follow does something again and again until it is ended.
func (s *scene) follow(do func()) (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			do()
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// uidsOf are the pods of a role and image that stay.
func (s *scene) uidsOf(image string) map[types.UID]string {
	uids := map[types.UID]string{}
	for _, pod := range s.Pods() {
		if pod.DeletionTimestamp == nil && imageOf(pod) == image {
			uids[pod.UID] = pod.Name
		}
	}
	return uids
}

// Roles are rolled together: no role has more groups than its surge allows, terminating ones too, and no fewer complete
// pairs than it wants.
func TestRolesRollTogether(t *testing.T) {
	s := newScene(t)
	slow := s.lingering(2 * time.Second)
	s.settledRoles(s.rolesSet("a", s.roleOf("prefill", 4, 2, imageA, slow), s.roleOf("decode", 4, 2, imageA, slow)))
	end := s.watching()
	s.awaitRoles(s.changeRoles("a", rolesRun(imageB)))
	w := end()
	expect.Equal(t, map[string]int{"prefill": 5, "decode": 5}, w.most)
	expect.Equal(t, map[string]int{"prefill": 4, "decode": 4}, w.least)
	for _, pod := range s.Pods() {
		expect.That(t, pod.DeletionTimestamp != nil || imageOf(pod) == imageB, "pod %s runs %s", pod.Name, imageOf(pod))
		role := corev1.EnvVar{Name: "DISAGGREGATEDSET_ROLE", Value: pod.Labels[dsv1.RoleLabelKey]}
		expect.That(t, slices.Contains(pod.Spec.Containers[0].Env, role), "pod %s has variables %v without %v", pod.Name, pod.Spec.Containers[0].Env, role)
	}
}

// A rollout that is taken back keeps every pod of the first revision that lives at that time.
func TestARolloutOfRolesIsTakenBack(t *testing.T) {
	s := newScene(t)
	set := s.settledRoles(s.rolesSet("a", s.roleOf("prefill", 3, 1, imageA), s.roleOf("decode", 2, 1, imageA)))
	first := s.childrenOf(set)
	s.changeRoles("a", rolesRun(imageB))
	s.Until("the rollout replaced a group", func() bool {
		return slices.ContainsFunc(s.Pods(), func(pod *corev1.Pod) bool { return imageOf(pod) == imageB && drill.PodReady(pod) })
	})
	set = s.changeRoles("a", rolesRun(imageA))
	kept := s.uidsOf(imageA)
	set = s.awaitRoles(set)
	expect.Equal(t, first, s.childrenOf(set))
	now := s.uidsOf(imageA)
	gone := 0
	for uid := range kept {
		if _, isThere := now[uid]; !isThere {
			gone++
		}
	}
	expect.That(t, gone <= 2, "%d pods of the first revision are gone: %v, now %v", gone, kept, now) // a step of each role may have been on its way
	expect.Equal(t, map[string]int{"prefill": 3, "decode": 2}, s.holding())
}

// Roles come, go, and change names and order, in a rollout each.
func TestRolesChange(t *testing.T) {
	s := newScene(t)
	s.settledRoles(s.rolesSet("a", s.roleOf("prefill", 2, 1, imageA), s.roleOf("decode", 2, 1, imageA)))
	for what, change := range map[string]func(*dsv1.DisaggregatedSet){
		"added": func(set *dsv1.DisaggregatedSet) {
			set.Spec.Roles = append(set.Spec.Roles, s.roleOf("router", 1, 1, imageA))
		},
		"renamed":   func(set *dsv1.DisaggregatedSet) { set.Spec.Roles[0].Name += "x" },
		"reordered": func(set *dsv1.DisaggregatedSet) { slices.Reverse(set.Spec.Roles) },
		"all renamed": func(set *dsv1.DisaggregatedSet) {
			for i := range set.Spec.Roles {
				set.Spec.Roles[i].Name += "y"
			}
		},
		"removed": func(set *dsv1.DisaggregatedSet) {
			set.Spec.Roles = slices.Delete(set.Spec.Roles, 0, len(set.Spec.Roles)-1)
		},
		"scaled": func(set *dsv1.DisaggregatedSet) {
			for i := range set.Spec.Roles {
				set.Spec.Roles[i].Spec.Replicas = new(int32(3))
			}
		},
	} {
		set := s.awaitRoles(s.changeRoles("a", change))
		want := map[string]int{}
		for _, role := range set.Spec.Roles {
			want[role.Name] = int(*role.Spec.Replicas)
		}
		s.Eventually("after roles are "+what, func() error {
			if have := s.holding(); !maps.Equal(want, have) {
				return fmt.Errorf("groups %v, want %v", have, want)
			}
			return nil
		})
	}
}

// Slices are made and deleted whole, and an operator that is killed meanwhile goes on.
func TestSlicesOfRoles(t *testing.T) {
	s := newScene(t)
	set := s.settledRoles(s.rolesSet("a", s.roleOf("prefill", 2, 1, imageA), s.roleOf("decode", 1, 1, imageA)))
	first := s.childrenOf(set)
	set = s.changeRoles("a", func(set *dsv1.DisaggregatedSet) { set.Spec.Slices = new(int32(3)) })
	s.RestartOperator()
	s.awaitRoles(set)
	expect.Equal(t, map[string]int{"prefill": 6, "decode": 3}, s.holding())
	s.changeRoles("a", rolesRun(imageB))
	s.RestartOperator()
	s.awaitRoles(s.changeRoles("a", rolesRun(imageA)))
	set = s.awaitRoles(s.changeRoles("a", func(set *dsv1.DisaggregatedSet) { set.Spec.Slices = nil }))
	expect.Equal(t, first, s.childrenOf(set))
	s.Until("one slice is left", func() bool { return maps.Equal(map[string]int{"prefill": 2, "decode": 1}, s.holding()) })
}

// A set that is deleted and created again at once never acts on what is left of the previous one.
func TestRolesDeletedAndCreatedAgain(t *testing.T) {
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		t.Run(strings.ToLower(string(how)), func(t *testing.T) {
			s := newScene(t)
			set := s.rolesSet("a", s.roleOf("prefill", 2, 2, imageA), s.roleOf("decode", 1, 1, imageA))
			former := s.settledRoles(set.DeepCopy())
			names := s.childrenOf(former)
			s.Remove(former, client.PropagationPolicy(how))
			again := set.DeepCopy()
			s.Eventually("the name is free", func() error { return s.Client.Create(s.Context(), again) })
			if how == metav1.DeletePropagationOrphan { // they stay, and are not adopted
				s.AwaitEvent("a", "NameConflict")
				for _, child := range drill.Live[*lwsv1.LeaderWorkerSet](s.Recorder) {
					expect.That(t, !metav1.IsControlledBy(child, again), "%s was adopted", child.Name)
					s.Remove(child)
				}
			}
			again = s.awaitRoles(again)
			expect.Equal(t, names, s.childrenOf(again))
		})
	}
}

// A role that never becomes ready stops the rollout, with every pair that the set wants.
func TestARoleThatIsNeverReady(t *testing.T) {
	s := newScene(t)
	s.settledRoles(s.rolesSet("a", s.roleOf("prefill", 2, 1, imageA), s.roleOf("decode", 2, 1, imageA)))
	end := s.watching()
	s.changeRoles("a", func(set *dsv1.DisaggregatedSet) {
		rolesRun(imageB)(set)
		metav1.SetMetaDataAnnotation(&set.Spec.Roles[1].Spec.LeaderWorkerTemplate.WorkerTemplate.ObjectMeta, "local.lockstep.dev/ready-after", "1h")
	})
	s.Until("the other role is ready", func() bool {
		return slices.ContainsFunc(s.Pods(), func(pod *corev1.Pod) bool {
			return imageOf(pod) == imageB && drill.PodReady(pod) && pod.Labels[dsv1.RoleLabelKey] == "prefill"
		})
	})
	time.Sleep(2 * time.Second)
	expect.Equal(t, map[string]int{"prefill": 3, "decode": 3}, s.holding())
	expect.Equal(t, map[string]int{"prefill": 2, "decode": 2}, end().least)
	s.awaitRoles(s.changeRoles("a", func(set *dsv1.DisaggregatedSet) { // and is taken back
		rolesRun(imageA)(set)
		set.Spec.Roles[1].Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = nil
	}))
}

// A role of one group without surge cannot be rolled beside the others: nothing is given up, and the status says what to do.
func TestARolloutWithoutRoom(t *testing.T) {
	s := newScene(t)
	set := s.rolesSet("a", s.roleOf("prefill", 4, 1, imageA), s.roleOf("decode", 1, 1, imageA))
	for i := range set.Spec.Roles {
		set.Spec.Roles[i].Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(1), MaxSurge: intstr.FromInt32(0)}
	}
	s.settledRoles(set)
	end := s.watching()
	s.changeRoles("a", rolesRun(imageB))
	drill.Await(s.Scene, "a", "the status says what blocks", func(set *dsv1.DisaggregatedSet) error {
		c := meta.FindStatusCondition(set.Status.Conditions, dsv1.ConditionProgressing)
		if c == nil || c.Reason != "RolloutBlocked" || !strings.Contains(c.Message, "decode") {
			return fmt.Errorf("Progressing: %v", c)
		}
		return nil
	})
	expect.Equal(t, map[string]int{"prefill": 4, "decode": 1}, end().least)
	s.awaitRoles(s.changeRoles("a", func(set *dsv1.DisaggregatedSet) {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, dsv1.SurgeOneAnnotationKey, "true")
	}))
}

// scaleRole sets what the scaler of a role says.
func (s *scene) scaleRole(name string, n int32) {
	s.Helper()
	scaler := &dsv1.DisaggregatedSetRoleScaler{}
	s.Eventually("scale "+name, func() error {
		if err := s.Client.Get(s.Context(), s.Key(name), scaler); err != nil {
			return err
		}
		scaler.Spec.Replicas = n
		return s.Client.Update(s.Context(), scaler)
	})
}

// An External role has as many groups as its scaler says, at rest and in a rollout.
func TestAnExternalRole(t *testing.T) {
	s := newScene(t)
	set := s.rolesSet("a", s.roleOf("prefill", 1, 1, imageA), s.roleOf("decode", 2, 1, imageA))
	set.Spec.Roles[0].Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal}
	s.settledRoles(set)
	scale := func(n int32) { s.scaleRole("a-prefill", n) }
	scale(3)
	s.Until("the role has three groups", func() bool { return s.holding()["prefill"] == 3 })
	s.changeRoles("a", rolesRun(imageB))
	scale(5)
	s.Until("the role has five groups of the target", func() bool { return s.holding()["prefill"] == 5 && len(s.uidsOf(imageB)) == 7 })
	scale(2)
	s.Until("the role has two groups", func() bool { return maps.Equal(map[string]int{"prefill": 2, "decode": 2}, s.holding()) })
	scaler := &dsv1.DisaggregatedSetRoleScaler{}
	s.Eventually("the scaler says what there is", func() error {
		err := s.Client.Get(s.Context(), s.Key("a-prefill"), scaler)
		if err == nil && (scaler.Status.Replicas != 2 || !strings.Contains(scaler.Status.Selector, "role=prefill")) {
			err = fmt.Errorf("status %+v", scaler.Status)
		}
		return err
	})
	set = s.changeRoles("a", func(set *dsv1.DisaggregatedSet) { set.Spec.Roles[0].Scaling = nil })
	s.awaitRoles(set)
	s.Until("the scaler is gone", func() bool { return len(drill.Live[*dsv1.DisaggregatedSetRoleScaler](s.Recorder)) == 0 })
}

// The HorizontalPodAutoscaler controller drives an External role through its scaler, by the leaders of the role alone.
func TestAnAutoscalerDrivesARole(t *testing.T) {
	s := newScene(t)
	s.define(metricsGroup, "v1beta1", "PodMetrics", "pods")
	set := s.rolesSet("a", s.roleOf("prefill", 1, 1, imageA), s.roleOf("decode", 1, 1, imageA))
	for i := range set.Spec.Roles {
		set.Spec.Roles[i].Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Requests =
			corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	}
	set.Spec.Roles[0].Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal}
	s.settledRoles(set)
	scaler := s.lendManifest("autoscaler", "VERSION", dsv1.GroupVersion.String(), "KIND", "DisaggregatedSetRoleScaler", "TARGET", "a-prefill")[0]
	measure := func(cpu string) {
		s.measured(slices.DeleteFunc(s.Pods(), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }), cpu)
	}
	reaches := func(n int, cpu string) {
		s.Eventually(fmt.Sprintf("the autoscaler asks for %d groups", n), func() error {
			measure(cpu)
			if have := s.holding()["prefill"]; have != n {
				return errors.Join(s.Read(scaler), fmt.Errorf("%d groups; the autoscaler says %v", have, scaler.Object["status"]))
			}
			return nil
		})
	}
	reaches(2, "100m") // the least that it keeps
	reaches(4, "180m")
	s.changeRoles("a", rolesRun(imageB))
	reaches(2, "40m")
	s.Until("the rollout is over", func() bool { return len(s.uidsOf(imageB)) == 3 && len(s.uidsOf(imageA)) == 0 })
	expect.Equal(t, 1, s.holding()["decode"])
}

// With the policy, failed groups of one role recreate those of its partners once, a few at a time, and no other group.
func TestPartnersRestartTogether(t *testing.T) {
	each(t, map[string]int{"one group": 1, "two groups": 2, "ten groups": 10}, func(s *scene, failed int) {
		groups := max(2, failed)
		set := s.rolesSet("a", s.roleOf("prefill", int32(groups), 2, imageA), s.roleOf("decode", 3, 1, imageA), s.roleOf("router", 1, 1, imageA))
		set.Annotations = map[string]string{dsv1.RestartPolicyAnnotationKey: dsv1.RestartPartners, dsv1.RestartPartnersAnnotationKey: "decode"}
		set = s.settledRoles(set)
		time.Sleep(1100 * time.Millisecond) // times of pods and failures have seconds
		child := func(role string) string {
			names := s.childrenOf(set)
			return names[slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, role) })]
		}
		var crashing []*corev1.Pod
		for i := range failed {
			crashing = append(crashing, s.Pod(fmt.Sprintf("%s-%d-1", child("prefill"), i)))
		}
		end := s.watching()
		s.Check("crash", drill.Together(crashing, s.crashes))
		born := func(role string) int {
			return len(s.Pick(func(r *drill.Record) bool { return r.Kind == "Pod" && r.Last.GetLabels()[dsv1.RoleLabelKey] == role }))
		}
		s.Until("the failed groups and their partners are others", func() bool { return born("prefill") == 2*(groups+failed) && born("decode") >= 6 })
		s.awaitRoles(set)
		s.still()
		time.Sleep(2 * time.Second)
		w := end()
		same(s.T, "pods of prefill", 2*(groups+failed), born("prefill"))
		expect.That(s, born("decode") <= 3*(1+failed), "%d pods of decode for %d failures", born("decode"), failed)
		expect.That(s, failed == groups || w.least["decode"] >= 2, "%d groups of decode were ready at least, want 2", w.least["decode"])
		same(s.T, "pods of router", 1, born("router"))
		s.Logf("%d failures: %d groups of decode were recreated, of 3", failed, born("decode")-3)
	})
}

// A set at rest is not written, whatever others write on what it owns.
func TestSettledRolesAreNotWritten(t *testing.T) {
	s := newScene(t)
	set := s.rolesSet("a", s.roleOf("prefill", 2, 2, imageA), s.roleOf("decode", 1, 1, imageA))
	set.Spec.Slices = new(int32(2))
	set.Annotations = map[string]string{dsv1.ServicesAnnotationKey: "true"}
	s.settledRoles(set)
	outlast(t)
	since := bed.Position()
	for round := range 3 {
		for _, o := range s.versions() {
			if o.Kind == "Pod" || o.Kind == "Service" || o.Kind == "LeaderWorkerSet" {
				s.Patch(o.Last, fmt.Sprintf(`{"metadata":{"annotations":{"test.lockstep.dev/touched":"%d"}}}`, round))
			}
		}
		outlast(t)
	}
	for _, write := range s.LockstepWrote(since) {
		expect.That(t, !strings.Contains(write.URI, "disaggregatedset"), "a write on a set at rest: %s", write)
	}
}

// Services are made for clients of other implementations, and stay until no group of their revision is left.
func TestServicesOfRoles(t *testing.T) {
	s := newScene(t)
	set := s.rolesSet("a", s.roleOf("prefill", 1, 1, imageA), s.roleOf("decode", 1, 1, imageA))
	set.Annotations = map[string]string{dsv1.ServicesAnnotationKey: "true"}
	set = s.settledRoles(set)
	services := func() (names []string) {
		for _, service := range drill.Live[*corev1.Service](s.Recorder) {
			if strings.HasSuffix(service.Name, "-prv") {
				names = append(names, strings.TrimSuffix(service.Name, "-prv"))
			}
		}
		slices.Sort(names)
		return names
	}
	s.Until("each child has a Service", func() bool { return slices.Equal(s.childrenOf(set), services()) })
	set = s.awaitRoles(s.changeRoles("a", rolesRun(imageB)))
	s.Until("each child has a Service", func() bool { return slices.Equal(s.childrenOf(set), services()) })
	s.Remove(s.Service(s.childrenOf(set)[0] + "-prv"))
	s.Until("the Service is made again", func() bool { return slices.Equal(s.childrenOf(set), services()) })
}

// A rollout that another implementation left halfway goes on: no pod of the target changes, and no child is made anew.
func TestRolesAreTakenOverInMidRollout(t *testing.T) {
	s := newScene(t)
	set := s.rolesSet("a", s.roleOf("prefill", 4, 1, imageB), s.roleOf("decode", 4, 1, imageB))
	set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: lwsv1.PausedValue}
	former := s.rolesSet("a", s.roleOf("prefill", 4, 1, imageA), s.roleOf("decode", 4, 1, imageA))
	var children []*lwsv1.LeaderWorkerSet
	for image, of := range map[string]*dsv1.DisaggregatedSet{imageA: former, imageB: set} {
		stored := of.DeepCopy()
		s.Check("have the API server set defaults", s.Client.Create(t.Context(), stored, client.DryRunAll))
		revision, err := disaggregated.RevisionOf(stored.Spec.Roles)
		s.Check("hash", err)
		for i := range stored.Spec.Roles {
			role := &stored.Spec.Roles[i]
			child := disaggregated.Child(stored, role, disaggregated.Place{Revision: revision, Role: role.Name}, 3, 4)
			child.OwnerReferences = nil
			if image == imageB { // made by the rollout, and not noted
				child.Spec.Replicas, child.Annotations = new(int32(1)), nil
			}
			s.Create(child)
			children = append(children, child)
		}
	}
	for _, child := range children {
		s.awaitSettled(child)
	}
	s.Create(set)
	s.AwaitEvent("a", "NameConflict")
	for _, child := range children {
		s.Patch(child, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":"DisaggregatedSet","name":"a","uid":%q,"controller":true}]}}`, dsv1.GroupVersion.String(), set.UID))
	}
	before := s.uidsOf(imageB)
	s.Until("all children are its own", func() bool { return len(s.childrenOf(set)) == 4 })
	names := s.childrenOf(set)
	end := s.watching()
	resumed := s.changeRoles("a", func(set *dsv1.DisaggregatedSet) { delete(set.Annotations, lwsv1.PausedAnnotationKey) })
	s.awaitRoles(resumed)
	w := end()
	expect.That(t, w.most["prefill"] <= 5 && w.most["decode"] <= 5, "groups that held nodes: %v", w.most)
	for _, name := range s.childrenOf(resumed) {
		expect.That(t, slices.Contains(names, name), "child %s is new, there were %v", name, names)
	}
	now := s.uidsOf(imageB)
	for uid, name := range before {
		expect.That(t, now[uid] == name, "pod %s of the target is another one", name)
	}
	for _, rec := range s.Pick(func(r *drill.Record) bool { return r.Kind == "LeaderWorkerSet" && r.Died > 0 }) {
		noted := rec.Last.GetAnnotations()[dsv1.InitialReplicasAnnotationKey]
		expect.That(t, noted == "4", "%s was noted to have had %q groups", rec.Last.GetName(), noted)
	}
}
