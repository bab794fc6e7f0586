package admission_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	strictjson "sigs.k8s.io/json"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/quantity"
	"lockstep.dev/lockstep/test/expect"
)

// FuzzMutatePod: every pod is mutated or refused, for a cost in proportion to its size, and twice
// is as good as once.
func FuzzMutatePod(f *testing.F) {
	const most = "2147483647"
	long := strings.Repeat("0", 1<<12) // the fuzzer is slow with more
	size := func(text string) podChange { return withPodAnnotation(lwsv1.SizeAnnotationKey, text) }
	part := func(text string) podChange { return withPodAnnotation(lwsv1.SubGroupSizeAnnotationKey, text) }
	for _, pod := range []*corev1.Pod{
		{},
		newWorker("w-0", part("3"), withTPUContainers(2)),
		newWorker("w-0-1", size(most), part(most), withTPUContainers(1), leaderTPU),
		newWorker("w-0-2147483647", size(most), part("1"), withTPUContainers(3)),
		newWorker("w-0-1", part(long)),
		newLeader("w-0", withPodAnnotation(lwsv1.ExclusiveKeyAnnotationKey, long)),
		newLeader("w-0", withTPUContainers(100)),
		newLeader("w-0", withPodAnnotation(lwsv1.SubdomainPolicyAnnotationKey, "UniquePerReplica"), part("2"),
			withPodAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"), withPodAnnotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "host")),
		newPod("w-0", func(p *corev1.Pod) { p.Labels, p.Annotations = nil, nil }),
	} {
		f.Add(encode(f, pod))
	}
	for _, cpu := range []string{`"1e-2147483647"`, `1e2147483647`, `"0e-2147483648"`, `"1e999"`} {
		f.Add([]byte(`{"metadata":{"name":"w-0","annotations":{"leaderworkerset.sigs.k8s.io/size":"1"}},"spec":{"containers":[{"resources":{"limits":{"google.com/tpu":` + cpu + `}}}]}}`))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var pod corev1.Pod
		if decode(podQuantities, raw, &pod) == nil {
			checkMutation(t, &pod)
		}
	})
}

// checkMutation mutates a pod twice. A worker with the ordinal 0 becomes a leader by the first.
func checkMutation(t testing.TB, pod *corev1.Pod) {
	before := len(encode(t, pod))
	worker := pod.Labels[lwsv1.WorkerIndexLabelKey] != "0"
	if admission.MutatePod(pod) != nil {
		return
	}
	after, limit := len(encode(t, pod)), mutatedAtMost(before)
	expect.Must(t, after <= limit, "a pod of %d bytes became one of %d, want at most %d", before, after, limit)
	if worker && pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
		return
	}
	once := pod.DeepCopy()
	expect.OKf(t, admission.MutatePod(pod), "the second time")
	expect.Equal(t, once, pod)
}

var podQuantities, setQuantities = quantity.In[corev1.Pod](), quantity.In[lwsv1.LeaderWorkerSet]()

// decode reads as the webhook does: the rules see no quantity that the check before them refuses.
func decode(places *quantity.Places, raw []byte, into any) error {
	if err := places.Check(raw); err != nil {
		return err
	}
	return strictjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// mutatedAtMost: each container of at least 27 bytes gets three variables of at most 3 KiB, every
// character escaped; a pod gets at most a megabyte of TPU variables and two affinity terms.
func mutatedAtMost(before int) int { return 256*before + 2<<20 }

func encode(t testing.TB, object any) []byte {
	return expect.Value(json.Marshal(object))(t)
}

// FuzzValidate: every set is defaulted, judged and warned of without harm.
func FuzzValidate(f *testing.F) {
	for _, set := range []*lwsv1.LeaderWorkerSet{
		{},
		newSet(withReplicas(2147483647), withSize(2147483647), withBudget("99999999999999999999%", "2147483647")),
		newSet(withName(strings.Repeat("-", 1<<12))),
		newSet(withClaims(claimOf("data", "fast", "1Gi")), withLeaderTemplate()),
	} {
		f.Add(encode(f, set), encode(f, newSet()))
	}
	for _, storage := range []string{`"1e-2147483647"`, `1e2147483647`, `"0e-2147483648"`, `"\u0031e-2147483647"`, `"1e999"`} {
		claim := []byte(`{"spec":{"leaderWorkerTemplate":{"volumeClaimTemplates":[{"metadata":{"name":"d"},"spec":{"resources":{"requests":{"storage":` + storage + `}}}}]}}}`)
		f.Add([]byte(`{}`), claim)
		f.Add(claim, claim)
	}
	f.Add([]byte(`{"spec":{"networkConfig":{},"leaderWorkerTemplate":{"subGroupPolicy":{}},"rolloutStrategy":{"rollingUpdateConfiguration":{}}}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, raw, rawOld []byte) {
		var set, old lwsv1.LeaderWorkerSet
		if decode(setQuantities, raw, &set) == nil && decode(setQuantities, rawOld, &old) == nil {
			checkSet(t, &set, &old)
		}
	})
}

// checkSet judges a set without defaults and with them. Defaults that are filled in twice change
// nothing, no judgement changes a set, and an update without a change is not refused.
func checkSet(t testing.TB, set, old *lwsv1.LeaderWorkerSet) {
	judge(t, set, old)
	admission.Default(set)
	once := set.DeepCopy()
	admission.Default(set)
	if !equality.Semantic.DeepEqual(once, set) {
		t.Fatalf("(-once +twice):\n%s", cmp.Diff(once, set))
	}
	judge(t, set, old)
	faults := (admission.Scheduling{}).ValidateUpdate(set, once)
	expect.Must(t, len(faults) == 0, "refused without a change: %v", faults)
}

func judge(t testing.TB, set, old *lwsv1.LeaderWorkerSet) {
	wasSet, wasOld := set.DeepCopy(), old.DeepCopy()
	_ = admission.Scheduling{}.ValidateCreate(set).ToAggregate()
	_ = admission.Scheduling{}.ValidateUpdate(set, old).ToAggregate()
	admission.Warnings(set, nil)
	admission.Warnings(set, old)
	expect.Must(t, equality.Semantic.DeepEqual(wasSet, set) && equality.Semantic.DeepEqual(wasOld, old),
		"judging a set changed it")
}
