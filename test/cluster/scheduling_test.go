package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/history"
)

const (
	stockScheduler = corev1.DefaultSchedulerName
	ourScheduler   = "lockstep-scheduler"
)

// schedules reports whether a scheduler wrote to a PVC or bound a pod.
func schedules(r drill.Request) bool {
	return strings.HasPrefix(r.Agent, "kube-scheduler/") &&
		(r.Resource == "persistentvolumeclaims" || r.Resource == "pods" && r.Subresource == "binding")
}

// boundClaim creates a PVC and waits for its volume. A foreign finalizer keeps it after a deletion.
func (s *scene) boundClaim(name string) *corev1.PersistentVolumeClaim {
	s.classClaim(name, "local", foreign)
	return s.AwaitPVC(name, "is bound", func(claim *corev1.PersistentVolumeClaim) error {
		return drill.Lacking("phase", corev1.ClaimBound, claim.Status.Phase)
	})
}

// recordOf returns the use record of a PVC.
func (s *scene) recordOf(name string) string {
	return s.PVC(name).Annotations[pvc.UsersAnnotation]
}

// awaitScheduled waits until a pod has a node.
func (s *scene) awaitScheduled(name string) *corev1.Pod {
	return drill.Await(s.Scene, name, "is scheduled", func(pod *corev1.Pod) error {
		if pod.Spec.NodeName == "" {
			return errors.New(refusal(pod))
		}
		return nil
	})
}

// awaitRefused waits until a pod has a reason for its missing node.
func (s *scene) awaitRefused(name, why string) {
	drill.Await(s.Scene, name, "is refused: "+why, func(pod *corev1.Pod) error {
		expect.Must(s, pod.Spec.NodeName == "", "pod %s is bound to %s", name, pod.Spec.NodeName)
		if text := refusal(pod); !strings.Contains(text, why) {
			return errors.New(text)
		}
		return nil
	})
}

// refusal returns the reason and message of PodScheduled.
func refusal(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return "nothing"
}

// checkRecorded checks that PVCs had the use record of a pod before it was bound.
func (s *scene) checkRecorded(pod *corev1.Pod, claims ...string) {
	s.WantRecorded(pod, claims...)
	s.Check("read the audit log", bed.Audit.Sync())
	wrote := bed.Audit.Kept(s.Audited, func(r drill.Request) bool { return schedules(r) && r.Namespace == s.Namespace && r.Code < 300 })
	bound := slices.IndexFunc(wrote, func(r drill.Request) bool { return r.Resource == "pods" && r.Name == pod.Name })
	expect.Must(s, bound >= 0, "the scheduler bound nothing: %v", wrote)
	for _, name := range claims {
		on := slices.IndexFunc(wrote, func(r drill.Request) bool {
			return r.Resource == "persistentvolumeclaims" && r.Verb == "patch" && r.Name == name
		})
		if on < 0 || on > bound || wrote[on].Done.After(wrote[bound].Begun) {
			s.Errorf("claim %s was not written on before pod %s was bound: %v", name, pod.Name, wrote)
		}
	}
}

// TestNoPodIsBoundToAClaimThatWentAfterANodeWasChosen deletes a PVC while the scheduler waits for the
// volume of another one. The stock scheduler binds the pod all the same.
func TestNoPodIsBoundToAClaimThatWentAfterANodeWasChosen(t *testing.T) {
	s := asideScene(t)
	slow := s.lendManifest("class")[0].GetName() // its volumes come from the drill
	for _, scheduler := range []string{stockScheduler, ourScheduler} {
		web, data, late := scheduler, "data-"+scheduler, "late-"+scheduler
		claim := s.boundClaim(data)
		s.classClaim(late, slow)
		s.user(web, []string{data, late}, by(scheduler))
		waiting := s.AwaitPVC(late, "waits for a volume at a node", func(c *corev1.PersistentVolumeClaim) error {
			if c.Annotations["volume.kubernetes.io/selected-node"] == "" {
				return drill.ErrStill
			}
			return nil
		})
		s.Remove(claim)
		s.lendManifest("volume", "CLASS", slow, "CLAIM", late, "UID", string(waiting.UID))
		if scheduler == stockScheduler {
			s.awaitScheduled(web) // or the drill shows nothing
			s.let(claim)
			continue
		}
		s.awaitRefused(web, fmt.Sprintf("persistentvolumeclaim %q is being deleted", data))
		s.Check("the pod was not bound", drill.Lacking("use record of claim "+late, "", s.recordOf(late)))
		s.vanish(claim)
		s.awaitRefused(web, fmt.Sprintf("persistentvolumeclaim %q not found", data))
		s.classClaim(data, "local")
		s.checkRecorded(s.awaitScheduled(web), data, late)
	}
}

// newStrictScene creates a scene in mode strict.
func newStrictScene(t *testing.T) *scene {
	t.Helper()
	direct := expect.Value(kubernetes.NewForConfig(bed.Rest))(t)
	told, err := history.Begin(t.Context(), direct)
	must(t, err)
	s := newScene(t)
	s.history = told
	s.SetMode("strict")
	s.Eventually("a pod that names its node is refused, and another is gated", func() error {
		named := s.newUser("probe", []string{"none"})
		named.Spec.NodeName = "nowhere"
		if err := s.Client.Create(s.Context(), named, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it is not refused: %w", err)
		}
		pod := s.newUser("probe", []string{"none"})
		err := s.Client.Create(s.Context(), pod, client.DryRunAll)
		return errors.Join(err, drill.Lacking("gated", true, pvc.Gated(pod)))
	})
	return s
}

// checkLifted checks that PVCs had the use record of a pod before its gate was lifted, and that it was
// bound after that.
func (s *scene) checkLifted(pod *corev1.Pod, claims ...string) {
	s.WantRecorded(pod, claims...)
	var told []history.Version
	s.Eventually("it is told how pod "+pod.Name+" came to be bound", func() (err error) {
		told, err = s.history.Told(s.Namespace)
		gated, bound := false, false
		for _, v := range told {
			if v.Pod != nil && v.Pod.UID == pod.UID {
				gated, bound = gated || pvc.Gated(v.Pod), bound || v.Pod.Spec.NodeName != ""
			}
		}
		return errors.Join(err, drill.Lacking("gated", true, gated), drill.Lacking("bound", true, bound))
	})
	_, err := history.Judge(told, true)
	s.Check("how it came", err)
}

// TestStrictWritesPodsOnTheirClaimsBeforeTheyAreScheduled, with any scheduler, and keeps a pod gated
// that has to wait.
func TestStrictWritesPodsOnTheirClaimsBeforeTheyAreScheduled(t *testing.T) {
	aside(t)
	s := newStrictScene(t)
	s.boundClaim("data")
	claim := s.boundClaim("logs")
	s.Create(s.newUser("web", []string{"data", "logs"}))
	s.checkLifted(s.awaitScheduled("web"), "data", "logs")
	s.Create(s.newUser("none", nil))
	s.awaitScheduled("none")

	s.Remove(s.Pod("web"))
	s.Eventually("no PVC names a pod", func() error {
		return errors.Join(drill.Lacking("use record", "", s.recordOf("logs")), drill.Lacking("use record", "", s.recordOf("data")))
	})

	s.Check("release claim logs", s.Client.Patch(s.Context(), claim.DeepCopy(), drill.Released(claim))) // the hold outlives the pod by its grace
	s.Remove(claim)
	s.Create(s.newUser("late", []string{"data", "logs"}))
	s.AwaitEvent("late", "ClaimUnusable", "logs")
	s.Check("pod late waits", s.IsGated("late"))
	s.Check("pod late waits for logs", drill.Lacking("use record", "", s.recordOf("data")))
	s.vanish(claim)
	s.AwaitEvent("late", "AwaitingClaim", "logs")
	s.classClaim("logs", "local")
	s.checkLifted(s.awaitScheduled("late"), "data", "logs")
}

// TestStrictWaitsForTheOperator: pods stay gated while no operator runs.
func TestStrictWaitsForTheOperator(t *testing.T) {
	s := newStrictScene(t)
	s.boundClaim("data")
	s.Check("kill the operator", bed.Operator.Kill())
	s.Create(s.newUser("web", []string{"data"}))
	s.awaitRefused("web", "SchedulingGated")
	s.Check("the PVC has no use record", drill.Lacking("use record", "", s.recordOf("data")))
	s.Check("start the operator", bed.Operator.Start())
	s.checkLifted(s.awaitScheduled("web"), "data")
}

const (
	gangMissing = "GangSchedulerMissing"
	tiedTo      = "scheduling.k8s.io/group-name"
	beGangs     = `{"metadata":{"annotations":{"lockstep.dev/gang-scheduler":"volcano"}}}`
)

// podGroupDefinition returns the CRD of PodGroups.
func (s *scene) podGroupDefinition() client.Object {
	definition := &unstructured.Unstructured{}
	text, err := manifests.ReadFile("testdata/podgroups.yaml")
	s.Check("read the definition", errors.Join(err, yaml.Unmarshal(text, &definition.Object)))
	return definition
}

// podGroups returns the PodGroups of the scene by name, none while the kind is not served.
func (s *scene) podGroups() map[string]*unstructured.Unstructured {
	list, all := &unstructured.UnstructuredList{}, map[string]*unstructured.Unstructured{}
	list.SetAPIVersion("scheduling.volcano.sh/v1beta1")
	list.SetKind("PodGroupList")
	s.Check("list PodGroups", client.IgnoreNotFound(s.Client.List(s.Context(), list, client.InNamespace(s.Namespace))))
	for i := range list.Items {
		all[list.Items[i].GetName()] = &list.Items[i]
	}
	return all
}

// notGangs names the first leader without a PodGroup of its own, or pod without its name.
func (s *scene) notGangs(set *lwsv1.LeaderWorkerSet, groups ...int) error {
	all := s.podGroups()
	for _, index := range groups {
		leader := s.Pod(fmt.Sprintf("%s-%d", set.Name, index))
		if leader == nil {
			return fmt.Errorf("group %d has no leader", index)
		}
		name := leader.Name + "-" + leader.Labels[lwsv1.RevisionKey]
		object := all[name]
		if object == nil || !metav1.IsControlledBy(object, leader) {
			return fmt.Errorf("leader %s (%s) has no PodGroup %s: %v", leader.Name, leader.UID, name, object)
		}
		for _, pod := range s.podsOf(set) {
			if pod.Labels[lwsv1.GroupIndexLabelKey] == fmt.Sprint(index) && pod.Annotations[tiedTo] != name {
				return fmt.Errorf("pod %s is tied to %q, not %q", pod.Name, pod.Annotations[tiedTo], name)
			}
		}
	}
	return drill.Lacking("PodGroups", len(groups), len(all))
}

// A running set becomes a gang, its scheduler comes later, groups restart, and so does the operator.
func TestGangs(t *testing.T) {
	s := newScene(t)
	set := s.settled(s.newSet("a", 2, 3, imageA))
	born := s.bornInto(set.UID, 0)

	s.Patch(set, beGangs)
	s.awaitGangMissing(metav1.ConditionTrue)
	s.Lend(s.podGroupDefinition())
	s.awaitGangMissing(metav1.ConditionFalse)
	s.Check("groups from before are left alone", s.notGangs(set))
	same(t, "born since gangs were switched on", born, s.bornInto(set.UID, 0))

	s.restartGroup(set, "a-0")
	s.restartGroup(set, "a-1")
	s.Eventually("both groups are gangs", func() error { return s.notGangs(set, 0, 1) })
	set = s.awaitSettled(set)
	before := s.podGroups()

	s.restartGroup(set, "a-0")
	s.Eventually("the next leader has a PodGroup of its own", func() error { return s.notGangs(set, 0, 1) })
	after := s.podGroups()
	for name, object := range before {
		was, is := object.GetUID(), after[name].GetUID()
		expect.That(t, (after[name].GetLabels()[lwsv1.GroupIndexLabelKey] == "0") != (was == is),
			"PodGroup %s was %s and is %s", name, was, is)
	}

	s.toldAndUntold(set)
	s.comesAndGoes(set)
	s.awaitSettled(set)
	untouched := s.Pod("a-0")
	mark := bed.Position()
	s.RestartOperator()
	s.restartGroup(set, "a-1")
	s.Eventually("the group is a gang again", func() error { return s.notGangs(set, 0, 1) })
	s.awaitSettled(set)
	for _, w := range s.LockstepWrote(mark) {
		expect.That(t, w.Resource != "podgroups" || w.Name != untouched.Annotations[tiedTo],
			"a restart of the operator and of another group touched %s", w)
	}

	s.Remove(set)
	s.awaitNothing(set.UID)
	s.Eventually("no PodGroup is left", func() error { return s.notGangs(set) })
}

// comesAndGoes deletes PodGroups, and then the kind. A group starts without the kind, and all have
// PodGroups once it is defined again.
func (s *scene) comesAndGoes(set *lwsv1.LeaderWorkerSet) {
	for _, object := range s.podGroups() {
		s.Remove(object)
	}
	s.Eventually("PodGroups that were deleted come again", func() error { return s.notGangs(set, 0, 1) })
	s.Remove(s.podGroupDefinition())
	s.awaitGangMissing(metav1.ConditionTrue)
	s.restartGroup(set, "a-0")
	s.Eventually("PodGroups can be defined again", func() error { return s.Client.Create(s.Context(), s.podGroupDefinition()) })
	s.awaitGangMissing(metav1.ConditionFalse)
	s.Eventually("all groups are gangs again", func() error { return s.notGangs(set, 0, 1) })
}

// toldAndUntold sets annotations for Volcano on the set and removes them. Annotations of others stay.
func (s *scene) toldAndUntold(set *lwsv1.LeaderWorkerSet) {
	told := func(queue, note string) func() error {
		return func() error {
			all := s.podGroups()
			err := drill.Lacking("PodGroups", 2, len(all))
			for name, object := range all {
				have, _, _ := unstructured.NestedString(object.Object, "spec", "queue")
				err = errors.Join(err, drill.Lacking("queue of "+name, queue, have),
					drill.Lacking("note of "+name, note, object.GetAnnotations()["volcano.sh/note"]))
			}
			return err
		}
	}
	s.Patch(set, `{"metadata":{"annotations":{"scheduling.volcano.sh/queue-name":"night","volcano.sh/note":"x"}}}`)
	s.Eventually("PodGroups that stand say what the set has come to say", told("night", "x"))
	for _, object := range s.podGroups() {
		s.Patch(object, `{"metadata":{"annotations":{"volcano.sh/theirs":"stays"}}}`)
	}
	s.Patch(set, `{"metadata":{"annotations":{"scheduling.volcano.sh/queue-name":null,"volcano.sh/note":null}}}`)
	s.Eventually("PodGroups that stand do not say it any more", told("", ""))
	for name, object := range s.podGroups() {
		same(s.T, "what others say in "+name, map[string]string{"volcano.sh/theirs": "stays"}, object.GetAnnotations())
	}
}

// awaitGangMissing waits until the set says whether its gang scheduler is missing.
func (s *scene) awaitGangMissing(status metav1.ConditionStatus) {
	s.Until(gangMissing+" is "+string(status), func() bool {
		return meta.IsStatusConditionPresentAndEqual(s.Set("a").Status.Conditions, gangMissing, status)
	})
}

const quotaGate = "kueue.x-k8s.io/admission"

// gateCreated stands for the webhook of another program: pods with a label are created with a gate. What it returns ends it.
func (s *scene) gateCreated(label, value, gate string) client.Object {
	binding := s.lendManifest("gate", "LABEL", label, "VALUE", value, "GATE", gate)[1]
	s.Eventually("the stand-in gates pods", func() error {
		pod := &corev1.Pod{ObjectMeta: s.Meta("a-0"), Spec: template(imageA).Spec}
		pod.Labels, pod.Annotations = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.WorkerIndexLabelKey: "0", label: value}, sized("2")
		return errors.Join(s.Client.Create(s.Context(), pod, client.DryRunAll), drill.Lacking("gate", true, hasGate(pod, gate)))
	})
	return binding
}

func hasGate(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == name })
}

// admit removes the gate from the pods of a group, as Kueue does when there is quota.
func (s *scene) admit(names ...string) {
	for _, name := range names {
		s.Until("pod "+name+" is queued", func() bool { pod := s.Pod(name); return pod != nil && hasGate(pod, quotaGate) })
		s.Patch(s.Pod(name), `{"spec":{"schedulingGates":null}}`)
	}
}

// waitsForQuota is an error until the plugin says that exactly these groups wait for quota.
func (s *scene) waitsForQuota(groups ...int) error {
	var waiting []int
	for _, group := range s.ask("", "status", "a").Groups {
		for _, wait := range group.Waiting {
			if strings.Contains(wait.Message, "waits for quota") && strings.Contains(wait.Message, quotaGate) {
				waiting = append(waiting, group.Index)
			}
		}
	}
	if !slices.Equal(waiting, groups) {
		return fmt.Errorf("groups %v wait for quota, want %v", waiting, groups)
	}
	return nil
}

// Groups wait for quota, each on its own, and the plugin says so. A group that is recreated asks for
// quota again. Quota is no failure: nothing else is recreated.
func TestASetThatWaitsForQuota(t *testing.T) {
	s := asideScene(t)
	const queue = "kueue.x-k8s.io/queue-name"
	s.gateCreated(queue, "team", quotaGate) // as Kueue's webhook does for pods with a queue
	set := s.newSet("a", 2, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Labels = map[string]string{queue: "team"}
	})
	s.Create(set)
	s.Eventually("both groups wait", func() error { return s.waitsForQuota(0, 1) })
	s.admit("a-0", "a-0-1")
	s.Eventually("one group waits", func() error {
		if now := s.Set("a"); now.Status.ReadyReplicas != 1 {
			return drill.Lacking("ready groups", 1, now.Status.ReadyReplicas)
		}
		return s.waitsForQuota(1)
	})
	s.admit("a-1", "a-1-1")
	s.awaitSettled(set)

	before := s.UIDs()
	s.crash("a-0-1", 1)
	s.Eventually("the recreated group waits", func() error {
		if now := s.UIDs()["a-0"]; now == "" || now == before["a-0"] {
			return drill.ErrStill
		}
		return s.waitsForQuota(0)
	})
	s.admit("a-0", "a-0-1")
	s.awaitRecreated(set, before, 0)
	r := s.Set("a").Status.Restarts
	expect.That(t, len(r) == 1 && r[0].Count == 1, "restarts: %+v", r)
}
