package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func mux(t testing.TB) http.Handler {
	t.Helper()
	m := http.NewServeMux()
	for path, h := range handlers(Sets{Revisions: history}, Pods{Kin: &kin{}}) {
		m.Handle(path, &admission.Webhook{Handler: h})
	}
	return m
}

func post(t testing.TB, path, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	mux(t).ServeHTTP(w, r)
	var review admissionv1.AdmissionReview
	expect.OKf(t, json.Unmarshal(w.Body.Bytes(), &review), "%s answered %d %q", path, w.Code, w.Body)
	expect.Must(t, review.Response != nil, "%s answered without a response: %s", path, w.Body)
	return review.Response
}

func review(operation admissionv1.Operation, kind metav1.GroupVersionKind, object, old string) string {
	request := &admissionv1.AdmissionRequest{UID: "u", Kind: kind, Name: "a", Namespace: "ns", Operation: operation, Object: runtime.RawExtension{Raw: []byte(object)}}
	if old != "" {
		request.OldObject.Raw = []byte(old)
	}
	text, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request})
	if err != nil {
		panic(err) // the objects of these tests are JSON
	}
	return string(text)
}

var (
	setKind = metav1.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}
	podKind = metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
)

const (
	goodSet = `{"apiVersion":"leaderworkerset.x-k8s.io/v1","kind":"LeaderWorkerSet","metadata":{"name":"a","namespace":"ns"},
		"spec":{"newer":1,"replicas":1,"leaderWorkerTemplate":{"size":2,"workerTemplate":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}}`
	leader = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a-0","namespace":"ns",
		"labels":{"leaderworkerset.sigs.k8s.io/name":"a","leaderworkerset.sigs.k8s.io/worker-index":"0"},
		"annotations":{"leaderworkerset.sigs.k8s.io/size":"2"}},
		"spec":{"newer":1,"subdomain":"a","containers":[{"name":"c","image":"i","env":[{"name":"A","newer":1}]}]}}`
)

// TestANewSetHasAProgressDeadline: a stored set, and one that says something, keep what they have.
func TestANewSetHasAProgressDeadline(t *testing.T) {
	const key = "lockstep.dev/progress-deadline"
	stored, off := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, map[string]string{key: "off"}
	for name, tt := range map[string]struct {
		given string
		has   map[string]string
		was   *lwsv1.LeaderWorkerSet
		want  map[string]string
	}{
		"a new set":                        {"30m", nil, &lwsv1.LeaderWorkerSet{}, map[string]string{key: "30m"}},
		"it says something":                {"30m", off, &lwsv1.LeaderWorkerSet{}, off},
		"a stored set":                     {"30m", nil, stored, nil},
		"the configuration says something": {"", nil, &lwsv1.LeaderWorkerSet{}, nil},
	} {
		is := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: tt.has}}
		expect.OK(t, Sets{ProgressDeadline: tt.given}.mutateSet(t.Context(), is, tt.was))
		expect.Equalf(t, tt.want, is.Annotations, "%s", name)
	}
}

// An API server does not repeat a call whose connection ended under it. A server that ends closes each after an answer.
func TestAnswersCloseTheirConnectionsBeforeTheEnd(t *testing.T) {
	ending := make(chan struct{})
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(closing(http.NotFoundHandler(), ending))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	for i, want := range []int{1, 1, 1, 2, 3} {
		if i == 2 {
			close(ending)
		}
		answer := expect.Value(server.Client().Get(server.URL))(t)
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		expect.Equalf(t, int32(want), connections.Load(), "connections after call %d", i)
	}
}

// An answer changes what its rules name, and removes no field that this version lacks.
func TestAnswersKeepFieldsOfALaterVersion(t *testing.T) {
	for name, c := range map[string]struct {
		path, raw string
		kind      metav1.GroupVersionKind
	}{
		"a set":   {PathMutateSet, goodSet, setKind},
		"an undo": {PathMutateSet, undone("0"), setKind},
		"a pod":   {PathMutatePod, leader, podKind},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				raw := fakeapi.WithLater(rt, []byte(c.raw))
				response := post(t, c.path, review(admissionv1.Create, c.kind, string(raw), ""))
				after := patched(t, raw, response.Patch)
				expect.Equalf(rt, fakeapi.LaterOf(raw), fakeapi.LaterOf(after), "fields of a later version")
			})
		})
	}
}

func TestRefusalNamesEveryFault(t *testing.T) {
	bad := strings.ReplaceAll(goodSet, `"size":2`, `"size":5,"subGroupPolicy":{"subGroupSize":7}`)
	for name, body := range map[string]string{
		"on creation": review(admissionv1.Create, setKind, bad, ""),
		"on update":   review(admissionv1.Update, setKind, bad, goodSet),
	} {
		response := post(t, PathValidateSet, body)
		expect.That(t, !response.Allowed && response.Result.Code == http.StatusForbidden &&
			response.Result.Reason == metav1.StatusReasonForbidden, "%s: got %+v", name, response)
		for _, want := range []string{"[", "size or size - 1 must be divisible by subGroupSize, ", "subGroupSize cannot be larger than size"} {
			expect.Says(t, response.Result.Message, want, name)
		}
	}
	response := post(t, PathValidateSet, review(admissionv1.Create, setKind, goodSet, ""))
	expect.That(t, response.Allowed, "a good set was refused: %+v", response.Result)
}

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		path, body string
		code       int32  // 0: allowed
		contains   string // of the message, or of the patch
	}{
		"a set without spec": {PathMutateSet, review(admissionv1.Create, setKind, `{"metadata":{"name":"a"}}`, ""), 0, `[{"op":"add","path":"/spec","value":{`},
		"a pod of no set":    {PathMutatePod, review(admissionv1.Create, podKind, `{"metadata":{"name":"p"}}`, ""), 0, ""},
		"a pod without a size": {PathMutatePod, review(admissionv1.Create, podKind, strings.Replace(leader, `"leaderworkerset.sigs.k8s.io/size":"2"`, ``, 1), ""),
			http.StatusForbidden, "size annotation is unexpectedly missing for pod a-0"},
		"validation of a pod":       {PathValidatePod, review(admissionv1.Update, podKind, leader, leader), 0, ""},
		"deletion of a set":         {PathValidateSet, review(admissionv1.Delete, setKind, `null`, goodSet), 0, ""},
		"another kind on this path": {PathMutateSet, review(admissionv1.Create, setKind, `{"kind":"Node","status":{"capacity":{"cpu":"1e-2147483647"}}}`, ""), 0, ""},
		"no body":                   {PathMutateSet, " ", http.StatusBadRequest, ""},
		"no JSON":                   {PathMutateSet, "{", http.StatusBadRequest, ""},
		"a set with a size \"two\"": {PathMutateSet, review(admissionv1.Create, setKind, strings.ReplaceAll(goodSet, `"size":2`, `"size":"two"`), ""), http.StatusBadRequest, ""},
		"a list as a set":           {PathMutateSet, review(admissionv1.Create, setKind, `[]`, ""), http.StatusBadRequest, ""},
		"more than the limit":       {PathMutateSet, strings.Repeat(" ", 7<<20) + "{}", http.StatusRequestEntityTooLarge, ""},
	} {
		response := post(t, c.path, c.body)
		got := string(response.Patch)
		if response.Result != nil {
			got += response.Result.Message
		}
		expect.That(t, response.Allowed == (c.code == 0) && (c.code == 0 || response.Result.Code == c.code) &&
			strings.Contains(got, c.contains), "%s: got %+v with %q", name, response, got)
		expect.That(t, c.path != PathMutatePod || c.code != 0 || len(response.Patch) == 0,
			"%s: the patch is %s", name, response.Patch)
	}
}

// costly are objects that take minutes to decode, or make a comparison panic.
var costly = map[string]string{
	"a limit":         strings.Replace(goodSet, `"image":"i"`, `"image":"i","resources":{"limits":{"cpu":"1e-2147483647"}}`, 1),
	"a great limit":   strings.Replace(goodSet, `"image":"i"`, `"image":"i","resources":{"limits":{"cpu":1e2147483647}}`, 1),
	"zero":            strings.Replace(goodSet, `"image":"i"`, `"image":"i","resources":{"requests":{"cpu":"0e-2147483648"}}`, 1),
	"a claim":         strings.Replace(goodSet, `"size":2`, `"size":2,"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":"1e-2147483647"}}}}]`, 1),
	"of another kind": `{"apiVersion":"v1","kind":"Pod","spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"overhead":{"cpu":"1e-2147483647"}}}}}}`,
	"a pod's":         strings.Replace(leader, `"image":"i"`, `"image":"i","resources":{"limits":{"cpu":"1e-2147483647"}}`, 1),
	"a pod's volume":  strings.Replace(leader, `"newer":1`, `"volumes":[{"emptyDir":{"sizeLimit":"1e-2147483647"}}]`, 1),
}

func TestCostlyQuantitiesAreNotDecoded(t *testing.T) {
	for name, object := range costly {
		requests := map[string]string{
			PathMutateSet:   review(admissionv1.Create, setKind, object, ""),
			PathValidateSet: review(admissionv1.Update, setKind, goodSet, object),
		}
		if strings.Contains(name, "pod") {
			requests = map[string]string{PathMutatePod: review(admissionv1.Create, podKind, object, "")}
		}
		for path, body := range requests {
			response := post(t, path, body)
			expect.That(t, !response.Allowed && response.Result.Code == http.StatusBadRequest &&
				strings.Contains(response.Result.Message, "exponent"), "%s on %s: got %+v", name, path, response.Result)
		}
	}
}

// FuzzServe sends what a hostile client may send. Each answer must be a review. The library
// answers a panic with 500.
func FuzzServe(f *testing.F) {
	for _, body := range []string{
		"", "{}", "null", `{"request":null}`, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}`,
		review(admissionv1.Create, setKind, goodSet, ""),
		review(admissionv1.Update, setKind, goodSet, `{"spec":null}`),
		review(admissionv1.Create, setKind, `{"spec":{"leaderWorkerTemplate":{"subGroupPolicy":{}}}}`, ""),
		review(admissionv1.Create, setKind, `{"spec":{"leaderWorkerTemplate":{"size":0,"subGroupPolicy":{"subGroupSize":0}}}}`, ""),
		review(admissionv1.Create, setKind, costly["a limit"], ""),
		review(admissionv1.Create, setKind, strings.Replace(costly["a limit"], "1e-21", `\u0031e-21`, 1), ""),
		review(admissionv1.Create, setKind, strings.Replace(goodSet, `"replicas":1`, `"rolloutStrategy":{"rollingUpdateConfiguration":{"maxSurge":"99999999999999999999%","maxUnavailable":1e400}}`, 1), ""),
		review(admissionv1.Update, disaggregatedKind, goodPair, `{"spec":{"roles":[null]}}`),
		review(admissionv1.Create, disaggregatedKind, strings.Replace(goodPair, `"replicas":2`, `"replicas":-2147483648,"rolloutStrategy":{"rollingUpdateConfiguration":{"maxSurge":"-1%"}}`, 1), ""),
		review(admissionv1.Create, podKind, leader, ""),
		review(admissionv1.Create, podKind, strings.Replace(leader, `"labels":{`, `"labels":{"disaggregatedset.x-k8s.io/name":"d",`, 1), ""),
		review(admissionv1.Create, podKind, strings.Replace(leader, `size":"2"`, `size":"99999999999999999999"`, 1), ""),
		review(admissionv1.Create, podKind, strings.Replace(leader, `size":"2"`, `size":"2147483647"`, 1), ""),
		review(admissionv1.Create, podKind, strings.Replace(leader, `"a-0"`, `"a"`, 1), ""),
		review(admissionv1.Create, podKind, strings.Replace(leader, `"containers":[`, `"containers":[null,`, 1), ""),
	} {
		f.Add([]byte(body))
	}
	server := mux(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{PathMutateSet, PathValidateSet, PathValidateDisaggregated, PathMutatePod, PathValidatePod} {
			r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			var review admissionv1.AdmissionReview
			err := json.Unmarshal(w.Body.Bytes(), &review)
			expect.Must(t, err == nil && review.Response != nil, "%s answered %q", path, w.Body)
			result := review.Response.Result
			expect.Must(t, result == nil || result.Code < http.StatusInternalServerError, "%s: %+v", path, result)
		}
	})
}

// kin returns its set and its leader.
// undone is the good set in an update that asks for an undo.
func undone(number string) string {
	return strings.Replace(goodSet, `"metadata":{`, `"metadata":{"annotations":{"lockstep.dev/undo-to-revision":"`+number+`"},`, 1)
}

// patched is an object after the patch of an answer, which must change it.
func patched(t *testing.T, raw, document []byte) []byte {
	t.Helper()
	patch, err := jsonpatch.DecodePatch(document)
	expect.Must(t, err == nil && len(patch) > 0, "%d changes, %v: %s", len(patch), err, document)
	return expect.Value(patch.Apply(raw))(t)
}

// history has one revision, of another image.
func history(_ context.Context, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
	before := set.DeepCopy()
	before.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers = []corev1.Container{{Name: "c", Image: "before"}}
	data, err := revision.Data(before)
	return []*appsv1.ControllerRevision{{Revision: 1, Data: runtime.RawExtension{Raw: data}}}, err
}

// The patch of an undo changes the template, takes the annotation off, and leaves what we do not know.
func TestAnUpdateIsAdmittedAsAnUndo(t *testing.T) {
	asked := undone("0")
	response := post(t, PathMutateSet, review(admissionv1.Update, setKind, asked, goodSet))
	expect.Must(t, response.Allowed, "refused: %+v", response.Result)
	after := string(patched(t, []byte(asked), response.Patch))
	for text, want := range map[string]bool{`"image":"before"`: true, `"newer":1`: true, "undo-to-revision": false} {
		expect.Equalf(t, want, strings.Contains(after, text), "%s in the patched set: %s", text, after)
	}
	response = post(t, PathMutateSet, review(admissionv1.Update, setKind, undone("2"), goodSet))
	expect.That(t, !response.Allowed, "an undo to a revision that is not there was admitted")
}

type kin struct {
	set      *lwsv1.LeaderWorkerSet
	leader   *corev1.Pod
	mustWait bool
	err      error
}

func (k *kin) Set(context.Context, *corev1.Pod) (*lwsv1.LeaderWorkerSet, error) {
	return k.set, k.err
}

func (k *kin) Leader(context.Context, *corev1.Pod) (*corev1.Pod, error) {
	return k.leader, k.err
}

func (k *kin) MustWait(context.Context, *corev1.Pod, time.Time) (bool, error) {
	return k.mustWait, nil
}

func worker(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "w-0-1",
		Labels:      map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0", lwsv1.RevisionKey: "r"},
		Annotations: map[string]string{lwsv1.SizeAnnotationKey: "2", lwsv1.LeaderPodNameAnnotationKey: "w-0"},
	}}
	return fakeapi.Edited(pod, edits...)
}

// A pod gets the PodGroup of its gang. A pod whose set or leader cannot be read is refused: it would
// be placed alone. A pod that is in a gang, or of no set, costs no read.
func TestPodsGetThePodGroup(t *testing.T) {
	says := func(scheduler string) *lwsv1.LeaderWorkerSet {
		return &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lwsv1.GangSchedulerAnnotationKey: scheduler}}}
	}
	leader := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		return worker(append(edits, func(pod *corev1.Pod) {
			pod.Name, pod.Labels[lwsv1.WorkerIndexLabelKey] = "w-0", "0"
			delete(pod.Annotations, lwsv1.LeaderPodNameAnnotationKey)
		})...)
	}
	tied := func(pod *corev1.Pod) { gang.Tie(&pod.ObjectMeta, gang.NameOf(pod)) }
	older := func(pod *corev1.Pod) { pod.Labels[lwsv1.RevisionKey] = "older" }
	noAnswer := &kin{err: errors.New("no answer")}
	for name, tt := range map[string]struct {
		pod   *corev1.Pod
		gangs Pods
		want  string
	}{
		"a leader goes where its set says":                  {leader(), Pods{Kin: &kin{set: says("volcano")}}, "w-0-r"},
		"a leader of a set that wants none":                 {leader(), Pods{Otherwise: true, Kin: &kin{set: says("none")}}, ""},
		"a leader of a set that does not say":               {leader(), Pods{Otherwise: true, Kin: &kin{set: says("")}}, "w-0-r"},
		"a leader whose set is not found":                   {leader(), Pods{Otherwise: true, Kin: &kin{}}, "w-0-r"},
		"a leader without any wish":                         {leader(), Pods{Kin: &kin{}}, ""},
		"a worker follows its leader":                       {worker(), Pods{Kin: &kin{set: says("none"), leader: leader(tied)}}, "w-0-r"},
		"a worker follows its leader that is in no gang":    {worker(), Pods{Otherwise: true, Kin: &kin{set: says("volcano"), leader: leader()}}, ""},
		"a worker of another revision than the leader":      {worker(), Pods{Kin: &kin{set: says("none"), leader: leader(older, tied)}}, ""},
		"a worker without a leader goes where its set says": {worker(), Pods{Kin: &kin{set: says("volcano")}}, "w-0-r"},
		"a worker whose template is tied":                   {worker(tied), Pods{Kin: noAnswer}, "w-0-r"},
		"not read":                                          {worker(), Pods{Kin: noAnswer}, "refused"},
		"of no set":                                         {&corev1.Pod{}, Pods{Kin: noAnswer}, ""},
	} {
		err := tt.gangs.mutatePod(t.Context(), tt.pod)
		if got := tt.pod.Annotations[gang.PodGroupAnnotationKey]; (err != nil) != (tt.want == "refused") || err == nil && got != tt.want {
			t.Errorf("%s: PodGroup %q, %v", name, got, err)
		}
	}
}

// A leader beside workers of the group before it is gated, once, however often the webhook is called, and so is a worker
// that replaces another one. A pod with a node and a leader of a first group are not.
func TestPodsWaitForTheGroupBeforeThem(t *testing.T) {
	leader := func(pod *corev1.Pod) {
		pod.Name, pod.Labels[lwsv1.WorkerIndexLabelKey] = "w-0", "0"
		delete(pod.Annotations, lwsv1.LeaderPodNameAnnotationKey)
	}
	placed := func(pod *corev1.Pod) { pod.Spec.NodeName = "n" }
	for name, tt := range map[string]struct {
		pod      *corev1.Pod
		mustWait bool
		want     int
	}{
		"beside a former worker": {worker(leader), true, 1},
		"of a first group":       {worker(leader), false, 0},
		"with a node":            {worker(leader, placed), true, 0},
		"a worker":               {worker(), true, 1},
	} {
		for calls := 1; calls <= 3; calls++ {
			expect.OK(t, (Pods{Kin: &kin{mustWait: tt.mustWait}}).mutatePod(t.Context(), tt.pod))
			expect.Equalf(t, tt.want, len(tt.pod.Spec.SchedulingGates), "%s, after %d calls: gates", name, calls)
		}
	}
}
