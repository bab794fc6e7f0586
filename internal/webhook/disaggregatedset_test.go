package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

var disaggregatedKind = metav1.GroupVersionKind{Group: "disaggregatedset.x-k8s.io", Version: "v1", Kind: "DisaggregatedSet"}

const (
	goodRole = `"spec":{"replicas":2,"leaderWorkerTemplate":{"size":2,"workerTemplate":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	goodPair = `{"apiVersion":"disaggregatedset.x-k8s.io/v1","kind":"DisaggregatedSet","metadata":{"name":"d","namespace":"ns","uid":"u"},
		"spec":{"newer":1,"roles":[{"name":"prefill",` + goodRole + `},{"name":"decode","scaling":{"mode":"External"},` + goodRole + `}]}}`
)

// Each write of a DisaggregatedSet is judged by the contract, and each role as its LeaderWorkerSet will be. What another
// implementation stored beyond the contract does not close a set to other changes.
func TestDisaggregatedSetsAreJudged(t *testing.T) {
	const warning = `role "decode" sets scaling.mode: External and spec.replicas: 2 — spec.replicas is ignored; drive replicas via DisaggregatedSetRoleScaler "d-decode" instead`
	partition := strings.Replace(goodPair, `"replicas":2`, `"replicas":2,"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":1}}`, 1)
	bad := strings.Replace(goodPair, `"size":2`, `"size":5,"subGroupPolicy":{"subGroupSize":7}`, 1)
	badRole := strings.Replace(goodRole, `"size":2`, `"size":5,"subGroupPolicy":{"subGroupSize":7}`, 1)
	moved := strings.Replace(strings.Replace(goodPair, `{"name":"prefill",`+goodRole+`},`, "", 1), `]}}`, `,{"name":"prefill",`+badRole+`}]}}`, 1)
	for name, c := range map[string]struct {
		body string
		code int32 // 0: allowed
		says []string
	}{
		"a good one":                          {review(admissionv1.Create, disaggregatedKind, goodPair, ""), 0, nil},
		"a good update":                       {review(admissionv1.Update, disaggregatedKind, goodPair, bad), 0, nil},
		"a bad one":                           {review(admissionv1.Create, disaggregatedKind, bad, ""), http.StatusForbidden, []string{"[spec.roles[0].spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: ", "must be divisible by subGroupSize, ", "subGroupSize cannot be larger than size"}},
		"a bad update":                        {review(admissionv1.Update, disaggregatedKind, bad, goodPair), http.StatusForbidden, []string{"must be divisible"}},
		"a deletion goes on":                  {review(admissionv1.Update, disaggregatedKind, strings.Replace(bad, `"name":"d",`, `"name":"d","deletionTimestamp":"2026-01-01T00:00:00Z",`, 1), bad), 0, nil},
		"a stored fault of the contract":      {review(admissionv1.Update, disaggregatedKind, partition, partition), http.StatusForbidden, []string{"partition is not supported"}},
		"a stored fault beyond it":            {review(admissionv1.Update, disaggregatedKind, bad, bad), 0, nil},
		"a stored fault of a role that moves": {review(admissionv1.Update, disaggregatedKind, moved, bad), 0, nil},
		"a role with the fault of another":    {review(admissionv1.Update, disaggregatedKind, strings.Replace(bad, `"prefill"`, `"route"`, 1), bad), http.StatusForbidden, []string{"must be divisible"}},
		"another fault beyond it":             {review(admissionv1.Update, disaggregatedKind, strings.Replace(bad, `"subGroupSize":7`, `"subGroupSize":3`, 1), bad), http.StatusForbidden, []string{"must be divisible"}},
		"a quantity":                          {review(admissionv1.Create, disaggregatedKind, strings.Replace(goodPair, `"image":"i"`, `"image":"i","resources":{"limits":{"cpu":"1e-2147483647"}}`, 1), ""), http.StatusBadRequest, []string{"exponent"}},
		"a mistyped quantity":                 {review(admissionv1.Create, disaggregatedKind, strings.Replace(goodPair, `"image":"i"`, `"image":"i","resources":{"limits":{"cpu":"half"}}`, 1), ""), http.StatusUnprocessableEntity, []string{"roles[0].spec.leaderWorkerTemplate", "limits[cpu]"}},
		"no object":                           {review(admissionv1.Create, disaggregatedKind, "[]", ""), http.StatusBadRequest, nil},
		"scheduling without its gate": {review(admissionv1.Create, disaggregatedKind, strings.Replace(goodPair, `"replicas":2`, `"replicas":2,"scheduling":{}`, 1), ""), http.StatusForbidden,
			[]string{"spec.roles[0].spec.scheduling: Forbidden: requires the "}},
	} {
		response := post(t, PathValidateDisaggregated, c.body)
		expect.Must(t, response.Allowed == (c.code == 0) && (c.code == 0 || response.Result.Code == c.code), "%s: got %+v", name, response)
		for _, text := range c.says {
			expect.Says(t, response.Result.Message, text, name)
		}
		isRead := c.code == 0 || c.code == http.StatusForbidden
		expect.That(t, !isRead || len(response.Warnings) == 1 && response.Warnings[0] == warning, "%s: warnings %q", name, response.Warnings)
	}
	response := post(t, PathValidateDisaggregated, review(admissionv1.Delete, disaggregatedKind, "null", bad))
	expect.That(t, response.Allowed, "a deletion was refused: %+v", response.Result)
}

func roles(specs ...*lwsv1.LeaderWorkerSet) *dsv1.DisaggregatedSet {
	set := &dsv1.DisaggregatedSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", UID: "u"}}
	for i, spec := range specs {
		set.Spec.Roles = append(set.Spec.Roles, dsv1.DisaggregatedRole{Name: []string{"p", "d"}[i], Spec: spec.Spec})
	}
	return set
}

// What no StatefulSet of a role can run is refused where the user wrote it. A role that does not change costs no dry run,
// and what a stored role has wrong is a warning.
func TestATemplateOfARoleThatKubernetesRefusesIsRefused(t *testing.T) {
	const name = "workerTemplate.spec.containers[0].name"
	ending := roles(edited(named("Main")), edited())
	ending.DeletionTimestamp = fakeapi.Ptr(metav1.Unix(9, 0))
	for what, tt := range map[string]struct {
		is, was         *dsv1.DisaggregatedSet
		calls           int
		refused, warned string
	}{
		"good roles":                       {is: roles(edited(), edited()), calls: 4},
		"a bad role":                       {is: roles(edited(), edited(named("Main"))), calls: 4, refused: "spec.roles[1].spec.leaderWorkerTemplate." + name},
		"a role that becomes bad":          {is: roles(edited(), edited(named("Main"))), was: roles(edited(), edited()), calls: 4, refused: "spec.roles[1].spec.leaderWorkerTemplate." + name},
		"no change":                        {is: roles(edited(named("Main"))), was: roles(edited(named("Main")))},
		"a new role":                       {is: roles(edited(), edited()), was: roles(edited()), calls: 2},
		"a stored fault and a good change": {is: roles(edited(named("Main"), ledBy("l"))), was: roles(edited(named("Main"))), calls: 4, warned: "spec.roles[0].spec.leaderWorkerTemplate." + name},
		"a set that is being deleted":      {is: ending},
	} {
		calls := 0
		s := Sets{DryRun: func(ctx context.Context, object client.Object) error { calls++; return judges(ctx, object) }}
		old, operation := "", admissionv1.Create
		if tt.was != nil {
			old, operation = string(expect.Value(json.Marshal(tt.was))(t)), admissionv1.Update
		}
		var request admissionv1.AdmissionReview
		expect.OK(t, json.Unmarshal([]byte(review(operation, disaggregatedKind, string(expect.Value(json.Marshal(tt.is))(t)), old)), &request))
		response := handlers(s, Pods{Kin: &kin{}})[PathValidateDisaggregated](t.Context(), admission.Request{AdmissionRequest: *request.Request})
		warnings := strings.Join(response.Warnings, "\n")
		expect.That(t, calls == tt.calls && response.Allowed == (tt.refused == "") && strings.Contains(warnings, tt.warned) && (tt.warned == "") == (warnings == ""),
			"%s: allowed %t after %d dry runs with warnings %q", what, response.Allowed, calls, warnings)
		if tt.refused != "" {
			expect.Says(t, response.Result.Message, tt.refused+": ", what)
		}
	}
}

// The variables of a role stand between those of its LeaderWorkerSet and those of the user, however often a pod is seen.
func TestPodsOfARoleKnowIt(t *testing.T) {
	pod := worker(func(pod *corev1.Pod) {
		pod.Labels[dsv1.SetNameLabelKey], pod.Labels[dsv1.RoleLabelKey], pod.Labels[dsv1.RevisionLabelKey] = "d", "prefill", "4852664f"
		pod.Spec.Containers = []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "DISAGGREGATEDSET_ROLE", Value: "mine"}}}}
		pod.Spec.InitContainers = []corev1.Container{{Name: "i"}}
	})
	ours := []string{"LWS_LEADER_ADDRESS=w-0..ns", "LWS_GROUP_SIZE=2", "LWS_WORKER_INDEX=1",
		"DISAGGREGATEDSET_NAME=d", "DISAGGREGATEDSET_ROLE=prefill", "DISAGGREGATEDSET_SLICE=0", "DISAGGREGATEDSET_REVISION=4852664f"}
	text := func(v corev1.EnvVar) string { return v.Name + "=" + v.Value }
	for range 3 {
		admitted(t, pod)
		expect.Equal(t, append(ours[:7:7], "A=1"), fakeapi.Each(pod.Spec.Containers[0].Env, text))
		expect.Equal(t, ours, fakeapi.Each(pod.Spec.InitContainers[0].Env, text))
	}
	pod.Labels[dsv1.RoleLabelKey] = strings.Repeat("x", 64)
	expect.ErrorSays(t, (Pods{Kin: &kin{}}).mutatePod(t.Context(), pod), "at most 63")
}

// etcd takes 1.5 MiB. A set of that size is admitted beside the stored one, and one that decodes to far more is not.
func TestALargeDisaggregatedSetIsAdmitted(t *testing.T) {
	const size = 1450 << 10
	filled := func(element string, size int) string {
		return review(admissionv1.Update, disaggregatedKind, strings.Replace(goodPair, `"name":"c"`, `"name":"c","env":[`+repeated(element, size)+`]`, 1), goodPair)
	}
	for body, want := range map[string]string{
		filled(`{"name":"SOME_VARIABLE_%d","value":"some-value"}`, size): `"allowed":true`,
		filled(`{}`, size): "too many containers, volumes or other values",
	} {
		w := send(served(), PathValidateDisaggregated, strings.NewReader(body), nil)
		expect.Says(t, w.Body.String(), want)
	}
}
