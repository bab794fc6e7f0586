package cluster

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/history"
)

// bed is the control plane and the operator every test of this binary runs on.
var bed *drill.Bed

const (
	// controllerManagerQPS is above the default of 20, which would slow each StatefulSet down.
	controllerManagerQPS = 200
	// nodes is the number of simulated nodes.
	nodes    = 20
	patience = drill.Patience

	apiServer         = drill.APIServer
	controllerManager = drill.ControllerManager
	scheduler         = drill.Scheduler
)

func TestMain(m *testing.M) {
	drill.Main(m, func(dir string, reaper *drill.Reaper) (err error) {
		bed, err = raise(dir, reaper)
		return err
	}, func() error {
		if bed == nil {
			return nil
		}
		return errors.Join(bed.CheckWrites(), bed.CheckRights())
	})
}

// raise starts a control plane, installs Lockstep and runs it.
func raise(dir string, reaper *drill.Reaper) (*drill.Bed, error) {
	b, err := drill.NewBed(dir, reaper, drill.Plane{Nodes: nodes, QPS: controllerManagerQPS, Kubelet: true})
	if err != nil {
		return nil, err
	}
	if !soak() { // it costs time, and a cache that is written to ends the operator
		b.Operator.Env = []string{"KUBE_CACHE_MUTATION_DETECTOR=true"}
	}
	fmt.Printf("control plane: %d nodes, controller manager at %d queries/s\n", nodes, controllerManagerQPS)
	b.MayWrite(metav1.NamespaceDefault) // the events of namespaces
	if err := b.Raise("cluster-test", kept); err != nil {
		return nil, err
	}
	return b, nil
}

// kept reports whether the audit log keeps a request: all of the plugin, writes of the operator,
// creates of pods, what a scheduler writes to PVCs and bindings, and what an autoscaler measures.
func kept(r drill.Request) bool {
	return byPlugin(r) || asksMetrics(r) || drill.IsDryRun(r) || drill.IsWrite(r) && (drill.ByLockstep(r) || drill.CreatesPod(r) || schedules(r))
}

// configured are the flags of an operator that reads a configuration with these fields.
func configured(t *testing.T, fields string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	must(t, os.WriteFile(file, []byte("apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"+fields), 0o600))
	return []string{"--config", file}
}

// soak reports whether drills with a fault run in full, one at a time.
func soak() bool { return os.Getenv("LOCKSTEP_SOAK") != "" }

// rounds returns how often each mode of delete-and-create runs.
func rounds(t *testing.T) int {
	text := os.Getenv("LOCKSTEP_ROUNDS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	expect.Must(t, err == nil && n >= 1, "LOCKSTEP_ROUNDS=%q: want a number of at least 1", text)
	return n
}

// faultRounds returns how often a drill with a fault runs.
func faultRounds(t *testing.T) int {
	if soak() {
		return rounds(t)
	}
	return (rounds(t) + 1) / 2
}

// seed is the source of all random moments of a run.
var seed = sync.OnceValue(func() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("LOCKSTEP_SEED"), 10, 64); err == nil {
		return n
	}
	return uint64(time.Now().UnixNano())
})

// smoke names one drill for each promise. "make drills" runs the others.
var smoke = []struct {
	promise string
	drill   func(*testing.T)
}{
	{"deleted in the background and recreated", recreateRounds("background")},
	{"deleted in the foreground and recreated", recreateRounds("foreground")},
	{"orphaned and recreated", recreateRounds("orphan, unchanged")},
	{"a stuck pod holds back its own group only", func(t *testing.T) { stuckPod(t, "a-3-2", 1, false, 3) }},
	{"taken over and handed back", TestTakeover},
	{"rolled out within its budget", TestRollout},
	{"a partition holds groups", TestPartitionHoldsGroups},
	{"a failed group is recreated once", TestContainerRestartRecreatesTheGroup},
	{"a failure is seen after the operator was down", TestWorkerThatVanishesWhileTheOperatorIsDown},
	{"scaled through the spec and the subresource", TestScale},
	{"PVCs outlive restarts and rollouts", func(t *testing.T) {
		each(t, map[string]retention{"kept with the set": keepClaims, "deleted with the set": deleteClaims}, outlive)
	}},
	{"a PVC in use stays", TestClaimsBesideTheBuiltIn},
	{"a held PVC is not deleted", func(t *testing.T) {
		guard(t)
		t.Run("workloads", func(t *testing.T) { workloadsHold(newGuarded(t)) })
		t.Run("restart", func(t *testing.T) { mistakeDuringRestart(newGuarded(t)) })
	}},
	{"strict mode waits for the operator", TestStrictWaitsForTheOperator},
	{"an exclusive topology", TestExclusiveTopology},
	{"gangs", TestGangs},
	{"a drain takes one group at a time", TestADrainTakesOneGroupAtATime},
	{"the operator's token is bounded", TestTheOperatorsTokenIsBounded},
	{"a settled set is not written", TestSettledSetIsNotWritten},
	{"roles are rolled together", TestRolesRollTogether},
	{"uninstalled", TestUninstallWithProtectedClaims},
}

// TestSmoke is the part of this package that "make test" runs.
func TestSmoke(t *testing.T) {
	for _, s := range smoke {
		t.Run(s.promise, s.drill)
	}
}

// scene is the namespace of one test, and what its recorder has seen.
type scene struct {
	*drill.Scene
	holds   bool             // its namespace is in mode hold
	history *history.History // in the API server's order, in mode strict
}

// newScene creates a namespace in which pods can be created, and records it.
func newScene(t *testing.T) *scene { return &scene{Scene: drill.NewScene(t, bed)} }

// asideScene is a scene of a test that runs beside others.
func asideScene(t *testing.T) *scene {
	aside(t)
	return newScene(t)
}

// aside runs the test beside others, but in a soak.
func aside(t *testing.T) {
	if !soak() {
		t.Parallel()
	}
}

// each runs a drill once for each row, beside others, in a scene of its own.
func each[R any](t *testing.T, rows map[string]R, drill func(*scene, R)) {
	for name, row := range rows {
		t.Run(name, func(t *testing.T) { drill(asideScene(t), row) })
	}
}

// inTurn runs a drill once for each row, one after the other: it kills the operator that all scenes share.
func inTurn[R any](t *testing.T, rows map[string]R, drill func(*scene, R)) {
	for name, row := range rows {
		t.Run(name, func(t *testing.T) { drill(newScene(t), row) })
	}
}

// must ends the test on an error.
var must = expect.OK

func propagation(policy metav1.DeletionPropagation) client.DeleteOption {
	return client.PropagationPolicy(policy)
}

// same reports the difference to what is wanted.
func same[T any](t *testing.T, what string, want, have T) {
	t.Helper()
	expect.Equalf(t, want, have, "%s", what)
}

//go:embed testdata
var manifests embed.FS

// lendManifest creates the objects of a manifest with each text replaced by the next one, and deletes them when the test
// ends, whatever finalizers they have. It waits until their kinds are served.
func (s *scene) lendManifest(name string, replaced ...string) (all []*unstructured.Unstructured) {
	text, err := manifests.ReadFile("testdata/" + name + ".yaml")
	s.Check("read the manifest", err)
	whole := strings.NewReplacer(append(replaced, "NAMESPACE", s.Namespace)...).Replace(string(text))
	for _, document := range strings.Split(whole, "---\n") {
		o := &unstructured.Unstructured{}
		s.Check("read an object", yaml.Unmarshal([]byte(document), &o.Object))
		s.Eventually(o.GetKind()+" "+o.GetName()+" exists", func() error {
			return client.IgnoreAlreadyExists(s.Client.Create(s.Context(), o))
		})
		s.Cleanup(func() {
			_ = s.Client.Patch(context.Background(), o, drill.Merge(drill.NoFinalizers))
			_ = s.Client.Delete(context.Background(), o)
		})
		all = append(all, o)
	}
	return all
}

// settled creates a set and waits until it is settled.
func (s *scene) settled(set *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	s.Create(set)
	return s.awaitSettled(set)
}

// persist repeats something while the API server or the webhooks are away, or a previous object
// has the name.
func (s *scene) persist(what string, do func() error) {
	s.Eventually(what, func() error {
		err := do()
		expect.Must(s, err == nil || passes(err), "%s: %v", what, err)
		return err
	})
}

// passes reports whether an error comes of a fault that a drill made.
func passes(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsTimeout(err)
}

// awaitSettled waits until a set is settled, and returns it.
func (s *scene) awaitSettled(set *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	s.Eventually(fmt.Sprintf("set %s (%s) is settled", set.Name, set.UID), func() error { return s.unsettled(set) })
	return s.Set(set.Name)
}

// unsettled returns what the status or the pods of a set lack.
func (s *scene) unsettled(want *lwsv1.LeaderWorkerSet) error {
	set := s.Set(want.Name)
	if set == nil || set.UID != want.UID {
		return fmt.Errorf("set %s (%s) is not there", want.Name, want.UID)
	}
	if set.Generation < want.Generation {
		return fmt.Errorf("generation %d of set %s was not seen yet", want.Generation, want.Name)
	}
	if err := s.unavailable(set); err != nil {
		return err
	}
	return s.podsMissing(set)
}

// unavailable returns what the status of a set lacks.
func (s *scene) unavailable(set *lwsv1.LeaderWorkerSet) error {
	replicas := *set.Spec.Replicas
	for _, err := range []error{
		drill.Lacking("status.observedGeneration", set.Generation, set.Status.ObservedGeneration),
		holds(set, lwsv1.LeaderWorkerSetAvailable, "AllGroupsReady"),
		drill.Lacking("status.readyReplicas", replicas, set.Status.ReadyReplicas),
		drill.Lacking("status.updatedReplicas", replicas, set.Status.UpdatedReplicas),
		drill.Lacking("status.replicas", replicas, set.Status.Replicas),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// holds is an error unless a condition is True, for that reason, and up to date.
func holds(set *lwsv1.LeaderWorkerSet, condition lwsv1.LeaderWorkerSetConditionType, reason string) error {
	c := meta.FindStatusCondition(set.Status.Conditions, string(condition))
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason {
		return fmt.Errorf("condition %s: want True for %s, have %+v", condition, reason, c)
	}
	return drill.Lacking(fmt.Sprintf("observedGeneration of condition %s", condition), set.Generation, c.ObservedGeneration)
}

// awaitTold waits until a condition of a set is True and its message names something, or until it is not True without a
// name.
func (s *scene) awaitTold(set, condition, name string) {
	drill.Await(s.Scene, set, condition+" names "+name, func(now *lwsv1.LeaderWorkerSet) error {
		c := meta.FindStatusCondition(now.Status.Conditions, condition)
		if isTold := c != nil && c.Status == metav1.ConditionTrue; isTold != (name != "") || isTold && !mentions(c.Message, name) {
			return fmt.Errorf("conditions: %+v", now.Status.Conditions)
		}
		return nil
	})
}

// awaitHolds waits until a condition of a set is True for a reason.
func (s *scene) awaitHolds(name string, condition lwsv1.LeaderWorkerSetConditionType, reason string) {
	drill.Await(s.Scene, name, string(condition)+" "+reason, func(set *lwsv1.LeaderWorkerSet) error { return holds(set, condition, reason) })
}

// podsMissing names a pod that is wrong, missing or too many.
func (s *scene) podsMissing(set *lwsv1.LeaderWorkerSet) error {
	if set.Spec.GroupIdentity == lwsv1.HashGroupIdentity {
		for _, leader := range s.leadersOf(set) {
			if err := s.unlike(set, leader); err != nil {
				return err
			}
		}
	}
	return s.mixed(set, set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image)
}

// mixed is an error unless all pods of an incarnation of a set are there and ready, and each has one of these images.
func (s *scene) mixed(set *lwsv1.LeaderWorkerSet, images ...string) error {
	pods := s.podsOf(set)
	for _, pod := range pods {
		ready, root := drill.PodReady(pod), s.Root(pod.UID)
		if !ready || root != set.UID || !slices.Contains(images, imageOf(pod)) {
			return fmt.Errorf("pod %s is ready: %t, is of set %s, and has image %s", pod.Name, ready, root, imageOf(pod))
		}
	}
	return drill.Lacking("pods", int(*set.Spec.Replicas**set.Spec.LeaderWorkerTemplate.Size), len(pods))
}

// podsOf returns the pods with the name label of a set.
func (s *scene) podsOf(set *lwsv1.LeaderWorkerSet) []*corev1.Pod {
	return slices.DeleteFunc(s.Pods(), func(pod *corev1.Pod) bool { return pod.Labels[lwsv1.SetNameLabelKey] != set.Name })
}

// awaitNothing waits until no object of a set is left.
func (s *scene) awaitNothing(uid types.UID) {
	s.Eventually(fmt.Sprintf("nothing is left of set %s", uid), func() error {
		left := s.Pick(func(r *drill.Record) bool { return r.Died == 0 && r.Kind != "Event" })
		if left, _ = s.ownedBy(uid, left); len(left) > 0 {
			return fmt.Errorf("left: %s", names(left))
		}
		return nil
	})
}

// awaitGroupReady waits until all pods of a group are ready and belong to this set.
func (s *scene) awaitGroupReady(set *lwsv1.LeaderWorkerSet, index int) {
	s.Until(fmt.Sprintf("group %d of set %s is ready", index, set.Name), func() bool { return s.readyGroups(set)[fmt.Sprint(index)] != "" })
}

// bornSince returns the records of one type that were first seen after a mark.
func bornSince[T client.Object](s *scene, mark int) []drill.Record {
	return s.Pick(func(rec *drill.Record) bool { _, ok := rec.Last.(T); return ok && rec.Born > mark })
}

// ownedBy divides records by whether their chain ends in a UID.
func (s *scene) ownedBy(uid types.UID, records []drill.Record) (own, others []drill.Record) {
	for _, rec := range records {
		if s.Root(rec.Last.GetUID()) == uid {
			own = append(own, rec)
		} else {
			others = append(others, rec)
		}
	}
	return own, others
}

// births counts the objects that a set created, without the revisions of StatefulSets.
type births struct {
	Pods, StatefulSets, Services, Revisions int
}

// bornInto counts the objects of a set that were created since a mark.
func (s *scene) bornInto(uid types.UID, mark int) births {
	number := func(records []drill.Record) int { own, _ := s.ownedBy(uid, records); return len(own) }
	return births{
		Pods: number(bornSince[*corev1.Pod](s, mark)), StatefulSets: number(bornSince[*appsv1.StatefulSet](s, mark)),
		Services: number(bornSince[*corev1.Service](s, mark)), Revisions: number(s.revisionsSince(mark)),
	}
}

// revisionsSince returns the revisions of sets that were created since a mark.
func (s *scene) revisionsSince(mark int) []drill.Record {
	return slices.DeleteFunc(bornSince[*appsv1.ControllerRevision](s, mark), func(rec drill.Record) bool {
		owner := metav1.GetControllerOf(rec.Last)
		return owner != nil && owner.Kind == "StatefulSet"
	})
}

// names returns the kinds and names of records.
func names(records []drill.Record) string {
	var text []string
	for _, rec := range records {
		text = append(text, fmt.Sprintf("%s/%s", rec.Kind, rec.Last.GetName()))
	}
	return strings.Join(text, " ")
}
