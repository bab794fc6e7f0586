package main

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/test/drill"
)

func TestOneReadIsTheWholeListAndNeitherAProbeNorAPage(t *testing.T) {
	const pods = "/api/v1/namespaces/a/pods"
	for _, tt := range []struct {
		verb, resource, uri string
		all, one            bool
	}{
		{"list", "pods", pods, true, false},
		{"list", "pods", pods + "?limit=2000", true, false},
		{"list", "pods", pods + "?continue=abc&limit=2000", false, false},
		{"list", "pods", pods + "?limit=1", false, true},
		{"list", "pods", pods + "?limit=10", true, false},
		{"watch", "pods", pods + "?watch=true", false, false},
		{"list", "persistentvolumeclaims", "/api/v1/persistentvolumeclaims", false, false},
	} {
		all, one := readsPods(drill.Request{Verb: tt.verb, Resource: tt.resource, URI: tt.uri})
		if all != tt.all || one != tt.one {
			t.Errorf("%s %s: %t, %t", tt.verb, tt.uri, all, one)
		}
	}
}

func at(second float64) time.Time { return time.Unix(1000, int64(second*1e9)) }

func wroteClaim(name string, begun, done float64, code int) drill.Request {
	return drill.Request{Verb: "patch", Resource: "persistentvolumeclaims", Name: name, Begun: at(begun), Done: at(done), Code: code}
}

func letGoAt(name string, done float64) drill.Request {
	return drill.Request{Verb: "delete", Resource: "pods", Name: name, Begun: at(done - 0.01), Done: at(done), Code: http.StatusOK}
}

func TestAClaimsLagIsFromTheEndOfItsPodToItsLastChange(t *testing.T) {
	requests := []drill.Request{
		wroteClaim("x-0", 0, 0.5, http.StatusOK), // its users may have changed it before
		letGoAt("user-of-x-0", 1), letGoAt("user-of-x-1", 2),
		wroteClaim("x-0", 1.1, 1.2, http.StatusOK),
		wroteClaim("x-0", 1.2, 1.5, http.StatusOK),
		wroteClaim("x-0", 1.6, 1.7, http.StatusConflict), // changed nothing
		wroteClaim("x-1", 2.1, 2.2, http.StatusOK),
		{Verb: "patch", Resource: "persistentvolumeclaims", Subresource: "status", Name: "x-1", Done: at(9), Code: http.StatusOK},
	}
	lags, err := lagsOf(requests, "x", 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]time.Duration{200 * time.Millisecond, 500 * time.Millisecond}, lags); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := lagsOf(requests, "x", 3); !errors.Is(err, errInvalid) {
		t.Errorf("a claim that nobody saw go: %v", err)
	}
}

func TestTheRateCountsFromTheFirstUsersGoing(t *testing.T) {
	first, last := span([]drill.Request{wroteClaim("a", 2, 3, http.StatusOK), wroteClaim("b", 1, 2, http.StatusOK), wroteClaim("c", 5, 6, http.StatusOK)})
	if !first.Equal(at(1)) || !last.Equal(at(6)) {
		t.Errorf("from %s to %s", first, last)
	}
	if rate := (freed{begun: at(0), first: first, last: last, claims: 60}).rate(); rate != 10 {
		t.Errorf("%v claims a second", rate)
	}
}

func TestAPercentileIsAValueThatWasSeen(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, tt := range []struct {
		of      []time.Duration
		p, want int
	}{{hundred, 99, 99}, {hundred, 50, 50}, {hundred[:10], 99, 10}, {hundred[:1], 50, 1}, {nil, 99, 0}} {
		if got := percentile(tt.of, tt.p); got != time.Duration(tt.want) {
			t.Errorf("p%d of %d values: %d, want %d", tt.p, len(tt.of), got, tt.want)
		}
	}
}

func TestOneBadRoundDoesNotDecideWhatAdmissionAdds(t *testing.T) {
	const ms = time.Millisecond
	steady := sample{with: []time.Duration{3 * ms, 9 * ms}, without: []time.Duration{2 * ms, 7 * ms}}
	stalled := sample{with: []time.Duration{3 * ms, 900 * ms}, without: []time.Duration{2 * ms, 7 * ms}}
	var f figures
	tellAdmission(&f, "a", []sample{steady, stalled, steady})
	want := figures{{"a-adds-ms-p50", 1}, {"a-without-ms-p50", 2}, {"a-adds-ms-p99", 2}, {"a-without-ms-p99", 7}}
	if diff := cmp.Diff(want, f, cmp.AllowUnexported(figure{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestBothSidesComeFirstInTurn(t *testing.T) {
	a, b := &claimStage{namespace: "a"}, &claimStage{namespace: "b"}
	order := ""
	for i := range 3 {
		for _, s := range inTurn(i, a, b) {
			order += s.namespace
		}
	}
	if order != "abbaab" {
		t.Errorf("got %s", order)
	}
}

func TestABindingKeepsWhatItLeftOutBefore(t *testing.T) {
	before := &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: modeLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"off"}},
	}}}
	for _, match := range []*admissionv1.MatchResources{nil, {}, before} {
		got := butLabelled(match).NamespaceSelector.MatchExpressions
		if last := got[len(got)-1]; last.Key != bareLabel || last.Operator != metav1.LabelSelectorOpDoesNotExist {
			t.Errorf("%v: got %v", match, got)
		}
	}
	if n := len(before.NamespaceSelector.MatchExpressions); n != 1 {
		t.Errorf("what was installed has %d expressions now", n)
	}
}

func TestOnlyTheBuiltInControllerOfClaimsIsTheFloor(t *testing.T) {
	const manager = "kube-controller-manager/v1.37.1 (linux/amd64) kubernetes/0/system:serviceaccount:kube-system:"
	for agent, want := range map[string]bool{manager + "pvc-protection-controller": true, manager + "persistent-volume-binder": false, "lockstep/v1": false} {
		if got := byBuiltIn(drill.Request{Agent: agent}); got != want {
			t.Errorf("%s: %t", agent, got)
		}
	}
}

func TestLoadsAreDividedByWholeNumbersOnly(t *testing.T) {
	for text, want := range map[string]int{"": 1, "1": 1, "20": 20, "0": 0, "-1": 0, "x": 0} {
		if got, err := divisor(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for whole, want := range map[int]int{1000: 50, 100: 10} {
		if got := (&bed{divide: 20}).part(whole); got != want {
			t.Errorf("%s: %d, want %d", fmt.Sprint(whole), got, want)
		}
	}
}
