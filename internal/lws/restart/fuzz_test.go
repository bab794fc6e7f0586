package restart

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
)

// Whoever may annotate a leader writes its decision, and who writes the status writes records. What is read of them says
// the same when it is written and read again, and its size is that of the text.
func FuzzAnnotations(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", "[]", `{"leader":"u"}`, `{"leader":"u","count":2147483647,"at":"2026-11-26T04:36:50Z"}`,
		`{"leader":"u","count":-1,"at":"9999-12-31T23:59:59Z","recreations":-1,"exhausted":true}`,
		`{"leader":"u","at":"0000-01-01T00:00:00+23:59","failure":{"pod":"p","message":"\u0000\ud800"},"containers":[{},{"log":"l"}]}`,
		`{"a/0":1}`, `{"a/0":-1}`, `{"a/0":2147483648}`, "AA.a", "AAAAAAEC.a", "//////////8B.", "AAAA", ".", strings.Repeat("A", 1000),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkDecision(t, text)
		checkRecord(t, text)
		counts, err := OthersCounts(text)
		expect.Must(t, err == nil || counts == nil, "counts %v and error %v", counts, err)
		for count := range maps.Values(counts) {
			expect.Must(t, count >= 0, "a count of %d", count)
		}
	})
}

func checkDecision(t *testing.T, text string) {
	since := metav1.Time{}
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	set.Spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.RecreateGroupOnPodRestart
	set.Status.RestartsSince = &since
	leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{AnnotationKey: text}}}
	decision := Of(set, leader)
	if decision == nil {
		return
	}
	due := decision.Due(set)
	expect.Must(t, !due.Before(&decision.At), "a decision of %s is due at %s", decision.At, due)
	said := decision.BackoffText(set, "0")
	expect.Must(t, len(said) <= 200+8*len(text), "%d bytes say %d", len(text), len(said))
	written := decision.Annotation()
	expect.Must(t, len(written) <= 1000+64*len(text), "%d bytes became %d", len(text), len(written))
	leader.Annotations[AnnotationKey] = written
	again := Of(set, leader)
	expect.Must(t, again != nil, "our own text is void: %s", written)
	twice := again.Annotation()
	expect.Must(t, twice == written, "once: %s\ntwice: %s", written, twice)
}

func checkRecord(t *testing.T, text string) {
	r := decodeRecord(text)
	expect.Must(t, len(r) <= len(text), "%d pods in %d bytes", len(r), len(text))
	again := decodeRecord(r.encode("key"))
	expect.Must(t, cmp.Equal(r, again, cmp.AllowUnexported(recorded{})), "%v became %v", r, again)
}
