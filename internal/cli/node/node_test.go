package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestWhatADrainDoes(t *testing.T) {
	leader, worker := fakeapi.Pod("a-0", "a", 0), fakeapi.Pod("a-0-1", "a", 0)
	leader.Labels[lwsv1.WorkerIndexLabelKey], worker.Labels[lwsv1.WorkerIndexLabelKey] = "0", "1"
	fakeapi.Up(leader)
	fakeapi.Up(worker)
	stopped := leader.DeepCopy()
	stopped.Finalizers = []string{lwsv1.GroupRestartBudgetFinalizer}
	down := leader.DeepCopy()
	down.Status.Conditions = nil
	allowed := &workload.Allowance{Allowed: 1, Why: "1 group may go"}
	blocked := &workload.Allowance{Why: workload.Blocked + "group 1 is not ready"}
	unlimited := &workload.Allowance{Why: "not limited: the set has not been ready yet"}
	const many, one = "recreated; several groups may be down at once", "recreated once, one group at a time"
	for name, tt := range map[string]struct {
		policy    lwsv1.RestartPolicyType
		allowance *workload.Allowance
		here      *corev1.Pod
		does      string
		start     string
	}{
		"no budget":              {"", nil, leader, many, "yes"},
		"a budget of no set yet": {"", unlimited, worker, many, "yes"},
		"a budget":               {"", allowed, worker, one, "yes"},
		"a budget that waits":    {"", blocked, worker, one, "no: group 1 is not ready"},
		"a group that is down":   {"", blocked, down, one, "yes"},
		"a stopped group":        {"", allowed, stopped, "stays: it was stopped, and its pods are evidence", "no: recover it first"},
		"None, a worker":         {lwsv1.NoneRestartPolicy, nil, worker, "keeps its leader; its workers here are replaced", "yes"},
		"None, a leader":         {lwsv1.NoneRestartPolicy, nil, leader, many, "yes"},
	} {
		var s clilws.Survey
		s.Set.Set, s.Standing.Allowance = fakeapi.Set("a", 2, 2, fakeapi.Policy(tt.policy)), tt.allowance
		does, start := effect(s, []*corev1.Pod{tt.here})
		expect.Equalf(t, "?, ?", does+", "+start, "%s, and budgets may not be read", name)
		s.Set.Evictions = &workload.Evictions{}
		does, start = effect(s, []*corev1.Pod{tt.here})
		expect.Equalf(t, tt.does+", "+tt.start, does+", "+start, "%s", name)
		s.Set.Evictions.Others = []string{"theirs"}
		_, start = effect(s, []*corev1.Pod{tt.here})
		expect.Equalf(t, tt.start == "yes", start == "?: PodDisruptionBudget theirs decides", "%s, beside another budget", name)
	}
}

// A right that is missing costs what it is for, and is named. Without pods there is nothing to show.
func TestMissingRights(t *testing.T) {
	s := fakeapi.New()
	expect.OK(t, s.IndexField(t.Context(), &corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }))
	fakeapi.Add(s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	pod := fakeapi.Pod("a-0", "a", 0)
	pod.Labels[lwsv1.GroupIndexLabelKey], pod.Spec.NodeName = "0", "n"
	fakeapi.Add(s, pod)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, "", nil)
	none := func(types.NamespacedName) (clilws.Survey, error) { return clilws.Survey{}, forbidden }
	live := s.Live()
	found := expect.Value(Read(t.Context(), live, []string{"n"}, none))(t)
	expect.That(t, len(found.Missing) == 1 && len(found.Groups) == 1 && found.Groups[0].Start == "?", "got %+v", found)
	live.Fail = func(n fakeapi.Name) error {
		if n.Kind == "Node" {
			return forbidden
		}
		return nil
	}
	found = expect.Value(Read(t.Context(), live, []string{"n"}, none))(t)
	text := page.Text(found, time.Time{})
	for _, part := range []string{"a-0         ?", "lws-node-reader-role", "lws-leaderworkerset-viewer-role"} {
		expect.Says(t, text, part)
	}
	_, err := Read(t.Context(), s.Live(), []string{"other"}, none)
	expect.ErrorSays(t, err, "kubectl get nodes")
}
