package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// The set reports what a quota or policy refuses. Other groups go on, and it ends with the refusal.
func TestWhatIsRefusedIsToldByTheSet(t *testing.T) {
	s := newScene(t)
	policy := s.lendManifest("refusal", "STATEFULSET", "w-1")[0]
	s.Eventually("the policy acts", func() error { return s.probed(foreignStatefulSet("probe"), policy.GetName()) })
	quota := s.forbid("services")
	s.Eventually("the quota counts", func() error {
		return s.probed(foreignService("probe"), "exceeded quota")
	})

	set := s.newSet("w", 3, 2, imageA)
	s.Create(set)
	s.Eventually("the set tells who refuses what", func() error {
		return s.tells(set, "create statefulset w-1: ", "ValidatingAdmissionPolicy '"+policy.GetName()+"'",
			"create service w: ", "exceeded quota: none")
	})
	for _, index := range []int{0, 2} {
		s.awaitGroupReady(set, index)
	}

	s.Remove(policy)
	s.Eventually("all groups are ready, and the set is not available without its Service", func() error {
		now := s.Set(set.Name)
		if now == nil || now.Status.ReadyReplicas != 3 {
			return drill.ErrStill
		}
		if s.unavailable(now) == nil {
			return errors.New("the set is available")
		}
		return s.tells(set, "create service w: ", "exceeded quota: none")
	})
	s.Remove(quota)
	s.Eventually("nothing is refused any more", func() error {
		if err := cmp.Or(s.tells(set), s.unavailable(s.Set(set.Name))); err != nil {
			return err
		}
		return s.Client.Get(s.Context(), client.ObjectKeyFromObject(set), &corev1.Service{})
	})
}

// TestSetsAreDeletedWithoutTheOperator: an update of labels, finalizers or owners needs no answer of the webhooks. The
// garbage collector removes a finalizer of a set whose deletion waits for its objects.
func TestSetsAreDeletedWithoutTheOperator(t *testing.T) {
	s := newScene(t)
	set := s.newSet("w", 1, 2, imageA)
	s.settled(set)
	s.Check("stop the operator", bed.Operator.Kill())
	t.Cleanup(func() { must(t, bed.Operator.Start()) })
	patch := func(text string) error {
		return s.Client.Patch(s.Context(), set.DeepCopy(), drill.Merge(text))
	}
	s.Check("change a label", patch(`{"metadata":{"labels":{"a":"b"}}}`))
	for _, refused := range []string{`{"metadata":{"annotations":{"a":"b"}}}`, `{"spec":{"replicas":2}}`} {
		expect.ErrorSays(t, patch(refused), "failed calling webhook", refused)
	}
	s.Check("delete the set", s.Client.Delete(s.Context(), set.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.Until("the set is gone", func() bool { return s.Set(set.Name) == nil })
}

// forbid gives the namespace a quota of none of a resource.
func (s *scene) forbid(resource string) client.Object {
	return s.lendManifest("quota", "RESOURCE", resource)[0]
}

// probed is an error unless the API server denies an object with this text.
func (s *scene) probed(o client.Object, words string) error {
	o.SetNamespace(s.Namespace)
	err := s.Client.Create(s.Context(), o, client.DryRunAll)
	return drill.Lacking("a probe is refused", true, err != nil && strings.Contains(err.Error(), words))
}

// tells is an error unless the condition reports refusals with these texts; without texts, if it reports any.
func (s *scene) tells(set *lwsv1.LeaderWorkerSet, words ...string) error {
	found := &lwsv1.LeaderWorkerSet{}
	if err := s.Get(set.Name, found); err != nil {
		return err
	}
	got := meta.FindStatusCondition(found.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	if tells := got != nil && got.Reason == "Refused"; tells != (len(words) > 0) {
		return fmt.Errorf("it tells %+v", got)
	}
	for _, word := range words {
		if !strings.Contains(got.Message, word) {
			return fmt.Errorf("%q is not told: %s", word, got.Message)
		}
	}
	return nil
}

// hostile is a pod that no set creates. The webhooks must answer it.
type hostile struct {
	name   string
	labels map[string]string
	notes  map[string]string
	edit   func(*corev1.Pod)
}

var leaderLabels = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.WorkerIndexLabelKey: "0"}
var workerLabels = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.GroupIndexLabelKey: "0"}

func sized(size string) map[string]string { return map[string]string{lwsv1.SizeAnnotationKey: size} }

var hostiles = []hostile{
	{name: "a-0", labels: leaderLabels},
	{name: "a-0", labels: leaderLabels, notes: sized("")},
	{name: "a-0", labels: leaderLabels, notes: sized("many")},
	{name: "a-0", labels: leaderLabels, notes: sized("-1")},
	{name: "a-0", labels: leaderLabels, notes: sized("99999999999999999999")},
	{name: "a-0", labels: leaderLabels, notes: sized("2147483647"), edit: wantsTPU},
	{name: "a-0-1", labels: workerLabels, notes: sized("2147483647"), edit: wantsTPU},
	{name: "a-0", labels: leaderLabels, notes: subgrouped("2147483647", "0"), edit: wantsTPU},
	{name: "a-0-1", labels: workerLabels, notes: subgrouped("4", "0")},
	{name: "a-0-1", labels: workerLabels, notes: subgrouped("4", "-1")},
	{name: "a-0-1", labels: workerLabels, notes: subgrouped("2147483647", "2147483647"), edit: wantsTPU},
	{name: "no-ordinal", labels: leaderLabels, notes: sized("2")},
	{name: "no-ordinal", labels: workerLabels, notes: sized("2")},
	{name: "a-99999999999999999999", labels: leaderLabels, notes: sized("2")},
	{name: "a-0", labels: map[string]string{lwsv1.SetNameLabelKey: "a"}, notes: sized("2")},
	{name: "a-0", labels: map[string]string{lwsv1.SetNameLabelKey: ""}, notes: sized("2")},
	{name: "a-0-1", labels: map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.WorkerIndexLabelKey: "x"}, notes: sized("2")},
	{name: "a-0", labels: leaderLabels, notes: sized("2"), edit: megabyte},
	{name: "a-0", labels: leaderLabels, notes: sized("2"), edit: thousandContainers},
	{name: "", labels: leaderLabels, notes: sized("2"), edit: func(p *corev1.Pod) { p.GenerateName = "a-" }},
}

func subgrouped(size, subgroup string) map[string]string {
	return map[string]string{lwsv1.SizeAnnotationKey: size, lwsv1.SubGroupSizeAnnotationKey: subgroup,
		lwsv1.SubGroupPolicyTypeAnnotationKey: string(lwsv1.SubGroupPolicyTypeLeaderWorker)}
}

func wantsTPU(pod *corev1.Pod) {
	tpu := corev1.ResourceList{"google.com/tpu": resource.MustParse("1")}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: tpu, Requests: tpu}
}

func megabyte(pod *corev1.Pod) {
	pod.Annotations["test.lockstep.dev/large"] = strings.Repeat("x", 1<<20)
}

func thousandContainers(pod *corev1.Pod) {
	one := pod.Spec.Containers[0]
	for range 1000 {
		pod.Spec.Containers = append(pod.Spec.Containers, one)
	}
}

// The webhooks answer every pod. The operator does not write in a namespace without a set, even to objects
// with a set's labels.
func TestHostilePodsAreAnswered(t *testing.T) {
	s := asideScene(t)
	sts := foreignStatefulSet("a")
	sts.Labels = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.RevisionKey: "x"}
	s.squat(sts)
	resting := s.squat(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a-0", Labels: leaderLabels, Annotations: sized("2")}, Spec: template(imageA).Spec})
	s.Remove(resting, force)
	for _, h := range hostiles {
		pod := &corev1.Pod{ObjectMeta: s.Meta(h.name), Spec: template(imageA).Spec}
		pod.Labels, pod.Annotations = h.labels, map[string]string{}
		maps.Copy(pod.Annotations, h.notes)
		if h.edit != nil {
			h.edit(pod)
		}
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		err := s.Client.Create(ctx, pod)
		cancel()
		s.Logf("%q %v %.60v: %.120v", h.name, h.labels, h.notes, err)
		switch {
		case err == nil:
			s.Remove(pod)
			s.Until("pod "+pod.Name+" is gone", func() bool { return s.Now(pod) == nil })
		case unanswered(err):
			t.Errorf("pod %q %v %v was not answered: %v", h.name, h.labels, h.notes, err)
		}
	}
	s.Check("the operator", bed.Operator.Ready())
	outlast(t)
	s.silent(s.Audited)
}

// unanswered reports whether a webhook failed to answer.
func unanswered(err error) bool {
	refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	return !refused || strings.Contains(err.Error(), "failed calling webhook") || apierrors.IsTimeout(err)
}

// The operator's own account may make the dry runs. Only a write of a template makes any, and a plan of a file tells what
// they find.
func TestTemplatesAreTriedByTheOperator(t *testing.T) {
	s := newScene(t)
	s.MayWrite(s.Namespace)
	config := rest.CopyConfig(bed.Rest)
	var warned bytes.Buffer
	config.WarningHandler = rest.NewWarningWriter(&warned, rest.WarningWriterOptions{})
	user := expect.Value(client.New(config, client.Options{Scheme: s.Client.Scheme()}))(t)
	for what, identity := range map[string]lwsv1.GroupIdentityType{"a": lwsv1.OrdinalGroupIdentity, "b": lwsv1.HashGroupIdentity} {
		set := s.newSet(what, 1, 2, imageA, func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = identity })
		must(t, user.Create(s.Context(), set, client.DryRunAll))
		must(t, user.Create(s.Context(), set))
		s.Patch(set, `{"spec":{"replicas":2}}`)
		s.Patch(set, `{"metadata":{"annotations":{"lockstep.dev/paused":"true"}}}`)
	}
	same(t, "warnings", "", warned.String())
	must(t, s.Audit.Sync())
	tried := s.Audit.Kept(0, func(r drill.Request) bool {
		return drill.IsDryRun(r) && r.Namespace == s.Namespace && drill.ByLockstep(r)
	})
	resources := map[string]int{}
	for _, r := range tried {
		resources[r.Resource]++
	}
	same(t, "dry runs", map[string]int{"statefulsets": 6, "deployments": 2}, resources)

	bad := s.newSet("c", 1, 2, imageA)
	bad.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Name = "Main"
	if out, errOut, err := s.Plugin(s.manifest(bad), "plan", "-f", "-"); err == nil || !strings.Contains(out+errOut, "workerTemplate.spec.containers[0].name") {
		t.Errorf("plan -f: %v\n%s%s", err, out, errOut)
	}
}
