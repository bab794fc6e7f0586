package consequence

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

// asking gives each pod of a set accelerators.
func asking(n string) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = fakeapi.Resources(gpu, n)
	}
}

func surveyOf(set *lwsv1.LeaderWorkerSet) (s clilws.Survey) {
	s.Set.Set, s.Set.Now = set, fakeapi.Epoch
	return s
}

// newNode is a ready node with accelerators.
func newNode(name string, gpus string, edits ...func(*corev1.Node)) corev1.Node {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Allocatable = corev1.ResourceList{gpu: resource.MustParse(gpus), corev1.ResourcePods: resource.MustParse("10")}
	return *fakeapi.Edited(&node, edits...)
}

func reasons(c *Consequence) (all []string) {
	for _, w := range c.Waits {
		all = append(all, w.Reason)
	}
	return all
}

func TestANewSetNeedsAllOfIt(t *testing.T) {
	c := OfSet(clilws.Survey{}, surveyOf(fakeapi.Set("llama", 2, 3, asking("4"))), false)
	expect.Equal(t, "the set is created with 2 groups", c.Verdict)
	expect.Equal(t, Groups{2, []string{"llama-0", "llama-1"}}, c.Created)
	expect.Equal(t, "2 groups, 6 pods, 24 nvidia.com/gpu", c.Peak.String())
	expect.Equal(t, "2 groups, 6 pods, 24 nvidia.com/gpu", c.More.String())
}

func TestRoomIsOfNodesThatFit(t *testing.T) {
	taint := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	nodes := []corev1.Node{
		newNode("a", "8"), newNode("b", "8"),
		newNode("cordoned", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		newNode("tainted", "8", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint} }),
		newNode("lost", "8", func(n *corev1.Node) { n.Status.Conditions = nil }),
	}
	user, ended := *fakeapi.Pod("other-0", "other", 0), *fakeapi.Pod("other-1", "other", 0)
	for _, pod := range []*corev1.Pod{&user, &ended} {
		pod.Spec.NodeName = "a"
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: fakeapi.Resources(gpu, "6")}}}
	}
	ended.Status.Phase = corev1.PodSucceeded
	tolerant := func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	}
	selective := func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.NodeSelector = map[string]string{"zone": "none"}
	}
	for name, tt := range map[string]struct {
		set         *lwsv1.LeaderWorkerSet
		free, waits string
	}{
		"enough":         {fakeapi.Set("llama", 1, 2, asking("4")), "19 pods on 2 nodes, 10 nvidia.com/gpu", ""},
		"too little":     {fakeapi.Set("llama", 2, 2, asking("4")), "19 pods on 2 nodes, 10 nvidia.com/gpu", CodeNoRoom},
		"tolerant":       {fakeapi.Set("llama", 2, 2, asking("4"), tolerant), "29 pods on 3 nodes, 18 nvidia.com/gpu", ""},
		"a pod too much": {fakeapi.Set("llama", 1, 1, asking("9")), "19 pods on 2 nodes, 10 nvidia.com/gpu", CodeNoNode},
		"no such node":   {fakeapi.Set("llama", 1, 1, asking("1"), selective), "0 pods", CodeNoNode},
	} {
		c := OfSet(clilws.Survey{}, surveyOf(tt.set), false)
		c.Fit(nodes, []corev1.Pod{user, ended}, nil)
		expect.Equalf(t, tt.free, c.Free.String(), "%s", name)
		expect.Equalf(t, tt.waits, strings.Join(reasons(c), " "), "%s", name)
	}
}

func TestAMissingRightIsNamed(t *testing.T) {
	c := OfSet(clilws.Survey{}, surveyOf(fakeapi.Set("llama", 1, 1)), false)
	c.Fit(nil, nil, errors.New(`nodes is forbidden: User "ann" cannot list resource "nodes"`))
	expect.Says(t, page.TextOf(fakeapi.Epoch, c.Write), `? (nodes is forbidden: User "ann" cannot list resource "nodes")`)
	expect.That(t, c.Free == nil && len(c.Waits) == 0, "got %+v", c)
}

func TestConfidentialValuesAreLeftOut(t *testing.T) {
	made := func(version, key string) *lwsv1.LeaderWorkerSet {
		return fakeapi.Set("llama", 1, 1, fakeapi.Annotation(corev1.LastAppliedConfigAnnotation, "hunter2"+version), fakeapi.Annotation("note", version),
			func(set *lwsv1.LeaderWorkerSet) {
				ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "hunter2" + version}, Key: key}
				serve := &set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0]
				serve.Image = "image:" + version
				serve.Env = []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2" + version}, {Name: "A]B", Value: "hunter2" + version}, {Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}}}
				serve.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref.LocalObjectReference}}}
			})
	}
	c := OfSet(surveyOf(made("1", "a")), surveyOf(made("2", "a")), false)
	raw := string(expect.Value(json.Marshal(c))(t))
	text := page.TextOf(fakeapi.Epoch, c.Write)
	for _, out := range []string{raw, text} {
		expect.That(t, !strings.Contains(out, "hunter2") && !strings.Contains(out, "last-applied"), "got %s", out)
		expect.That(t, strings.Contains(out, "image:1") && strings.Contains(out, "image:2") && strings.Contains(out, "annotations.note"), "got %s", out)
	}
	expect.Equalf(t, 4, strings.Count(text, ": (changed)"), "values left out of\n%s", text)
	shown := page.TextOf(fakeapi.Epoch, OfSet(surveyOf(made("1", "a")), surveyOf(made("2", "a")), true).Write)
	expect.Says(t, shown, `env[TOKEN].value: "hunter21" → "hunter22"`)
}

func TestNothingChanges(t *testing.T) {
	set := fakeapi.Set("llama", 2, 2)
	expect.Equal(t, "nothing changes", OfSet(surveyOf(set), surveyOf(set.DeepCopy()), false).Verdict)
	ends := fakeapi.Edited(set.DeepCopy(), func(set *lwsv1.LeaderWorkerSet) { set.DeletionTimestamp = new(metav1.NewTime(fakeapi.Epoch)) })
	expect.Says(t, OfSet(surveyOf(set), surveyOf(ends), false).Verdict, "nothing restarts")
}

// A group that started with a container that restarted says nothing of how long a start takes.
func TestAStartLastsUntilTheLastPodIsReady(t *testing.T) {
	set, g := fakeapi.Set("llama", 1, 1), &clilws.Group{}
	g.Leader = fakeapi.Pod("llama-0", "llama", 0)
	g.Leader.CreationTimestamp = metav1.NewTime(fakeapi.Epoch)
	fakeapi.Up(g.Leader)
	for i := range g.Leader.Status.Conditions {
		g.Leader.Status.Conditions[i].LastTransitionTime = metav1.NewTime(fakeapi.Epoch.Add(90 * time.Second))
	}
	expect.Equal(t, 90*time.Second, startOf(g, set))
	g.Leader.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}}
	expect.Equal(t, 0, startOf(g, set))
}

func TestManyNamesAreAbbreviated(t *testing.T) {
	expect.Equal(t, "llama-5, llama-4, … llama-1", named([]string{"llama-5", "llama-4", "llama-3", "llama-2", "llama-1"}).String())
	expect.Equal(t, "the Deployment controller chooses", Groups{Count: 2}.String())
}

// A surge group that exists stands for one that may be down: the rollout does not wait for a budget.
func TestASurgeGroupThatExistsIsBudget(t *testing.T) {
	for peak, want := range map[int32]int{2: 0, 3: 1, 4: 1} {
		set := fakeapi.Set("llama", 2, 1)
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
			MaxUnavailable: intstr.FromInt32(0), MaxSurge: intstr.FromInt32(1),
		}
		s := &sets{set: set, roll: table.Roll{Peak: peak}}
		expect.Equalf(t, want, s.mayBeDown(), "of at most %d groups", peak)
	}
}
