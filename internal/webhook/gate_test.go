package webhook

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
)

// served are the webhooks behind their gate, as the operator serves them.
func served() http.Handler {
	m := http.NewServeMux()
	Register(webhook.NewServer(webhook.Options{WebhookMux: m}), Sets{Revisions: history}, Pods{Kin: &kin{}}, nil)
	return m
}

func send(server http.Handler, path string, body io.Reader, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, body)
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

// repeated returns size bytes of an element; %d in it is its number.
func repeated(element string, size int) string {
	var text strings.Builder
	for i := 0; text.Len() < size; i++ {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(strings.ReplaceAll(element, "%d", fmt.Sprint(i)))
	}
	return text.String()
}

// setWith is a set with more in its metadata, template, pod or container.
func setWith(t *testing.T, where, what string) string {
	t.Helper()
	before := map[string]string{"metadata": `"name":"a",`, "template": `"size":2,`, "pod": `"containers":[`, "container": `"image":"i"`}[where]
	expect.Must(t, before != "" && strings.Count(goodSet, before) == 1, "no place %q", where)
	if where == "container" {
		what = "," + what
		return strings.Replace(goodSet, before, before+what, 1)
	}
	return strings.Replace(goodSet, before, what+","+before, 1)
}

// A client that is not an API server can fill a request with two-byte containers. Whatever fills it, as much as is let
// through takes a bounded memory, and what is more is refused before it is decoded.
func TestRequestsAreNotAmplified(t *testing.T) {
	server, weigh := served(), reviewOf[*lwsv1.LeaderWorkerSet]()
	good := review(admissionv1.Create, setKind, goodSet, "")
	user := func(what string) string {
		return strings.Replace(good, `"request":{`, `"request":{"userInfo":{`+what+`},`, 1)
	}
	filled := map[string]func(size int) string{
		"groups of the user": func(size int) string { return user(`"groups":[` + repeated(`""`, size) + `]`) },
		"extras of the user": func(size int) string { return user(`"extra":{` + repeated(`"%d":[]`, size) + `}`) },
	}
	amplified, err := os.ReadFile("testdata/amplified.txt") // names, places, forms and the elements that fill them
	expect.OK(t, err)
	for line := range strings.Lines(string(amplified)) {
		a := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		filled[a[0]] = func(size int) string {
			return review(admissionv1.Create, setKind, setWith(t, a[1], strings.Replace(a[2], "%s", repeated(a[3], size), 1)), "")
		}
	}
	for name, fill := range filled {
		const sample = 32 << 10
		each := expect.Value(weigh.of([]byte(fill(sample)), mostWeight))(t)
		size := min(int(sample*mostWeight/max(each, 1)), mostBody) * 9 / 10
		for size, code := range map[int]int{size: http.StatusOK, 2 * size: http.StatusRequestEntityTooLarge} {
			body := fill(size)
			took := allocated(func() {
				w := send(server, PathMutateSet, strings.NewReader(body), nil)
				expect.Equalf(t, code, w.Code, "%s, %d bytes: %.200s", name, size, w.Body)
			})
			t.Logf("%s, %d KiB: allocated %d MiB", name, size>>10, took>>20)
			// This is garbage as well, of which most is free before the end.
			expect.That(t, took <= uint64(24*mostWeight), "%s, %d bytes: allocated %d MiB", name, size, took>>20)
		}
	}
	for name, body := range map[string]string{
		"a list of YAML":        "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest: [" + repeated("{}", mostBody*9/10) + "]",
		"nested lists":          strings.Repeat("[", mostBody*9/10),
		"nested objects":        strings.Repeat(`{"request":`, mostBody/12),
		"nested unknown fields": `{"newer":` + strings.Repeat("[", mostBody*9/10),
	} {
		took := allocated(func() {
			w := send(server, PathMutateSet, strings.NewReader(body), nil)
			expect.Equalf(t, http.StatusBadRequest, w.Code, "%s: %.200s", name, w.Body)
		})
		expect.That(t, took <= uint64(10*mostBody), "%s: allocated %d MiB", name, took>>20)
	}
}

func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// etcd takes 1.5 MiB. A set of that size, beside the stored one, is admitted, whatever it consists of.
func TestLargeSetsAreAdmitted(t *testing.T) {
	const size = 1450 << 10
	managed := func(element string) string {
		return `"managedFields":[{"manager":"m","operation":"Apply","fieldsType":"FieldsV1","fieldsV1":{` + repeated(element, size/2) + `}}]`
	}
	for name, set := range map[string]string{
		"a script":    setWith(t, "container", `"args":["`+strings.Repeat("x", size)+`"]`),
		"annotations": setWith(t, "metadata", `"annotations":{`+repeated(`"example.com/note-%d":"a note of some length about this set"`, size)+`}`),
		"variables": strings.Replace(setWith(t, "container", `"env":[`+repeated(`{"name":"SOME_VARIABLE_%d","value":"some-value"}`, size/2)+`]`),
			`"name":"a",`, `"name":"a",`+managed(`"k:{\"name\":\"SOME_VARIABLE_%d\"}":{".":{},"f:name":{},"f:value":{}}`)+",", 1),
		"containers": setWith(t, "pod", `"initContainers":[`+repeated(`{"name":"container-%d","image":"registry.example.com/a/b:v1","command":["a","b"],"env":[{"name":"A","value":"b"}],`+
			`"resources":{"limits":{"cpu":"1","memory":"1Gi"}},"imagePullPolicy":"Always","terminationMessagePath":"/dev/termination-log"}`, size)+`]`),
		"volumes": setWith(t, "pod", `"volumes":[`+repeated(`{"name":"volume-%d","configMap":{"name":"configuration-%d","items":[{"key":"a","path":"b"}]}}`, size)+`]`),
	} {
		for _, path := range []string{PathMutateSet, PathValidateSet} {
			body := review(admissionv1.Update, setKind, set, strings.Replace(set, `"size":2`, `"size":3`, 1))
			w := send(served(), path, strings.NewReader(body), nil)
			expect.That(t, len(set) <= 1536<<10 && w.Code == http.StatusOK &&
				strings.Contains(w.Body.String(), `"allowed":true`),
				"%s of %d bytes on %s: %d %.300s", name, len(set), path, w.Code, w.Body)
		}
	}
}

// Requests of another form than an API server's cost little, and say what is wrong.
func TestForeignRequestsAreRefused(t *testing.T) {
	good := review(admissionv1.Create, setKind, goodSet, "")
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for name, c := range map[string]struct {
		body   string
		change func(*http.Request)
		code   int
		says   string
	}{
		"the usual":            {good, nil, http.StatusOK, `"allowed":true`},
		"chunked":              {good, chunked, http.StatusOK, `"allowed":true`},
		"too large":            {`{"a":"` + strings.Repeat("x", mostBody) + `"}`, nil, http.StatusRequestEntityTooLarge, "more than 5 MiB"},
		"chunked, too large":   {`{"a":"` + strings.Repeat("x", mostBody) + `"}`, chunked, http.StatusRequestEntityTooLarge, "more than 5 MiB"},
		"empty":                {"", nil, http.StatusBadRequest, "no JSON object"},
		"chunked, empty":       {"", chunked, http.StatusBadRequest, "no JSON object"},
		"cut off":              {good[:len(good)/2], nil, http.StatusBadRequest, "no JSON object"},
		"compressed":           {"\x1f\x8b\x08\x00", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, http.StatusBadRequest, "no JSON object"},
		"protobuf":             {"k8s\x00", func(r *http.Request) { r.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf") }, http.StatusBadRequest, "no JSON object"},
		"YAML":                 {"kind: AdmissionReview", nil, http.StatusBadRequest, "no JSON object"},
		"another content type": {good, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, http.StatusOK, "text/plain"},
	} {
		w := send(served(), PathMutateSet, strings.NewReader(c.body), c.change)
		expect.That(t, w.Code == c.code && strings.Contains(w.Body.String(), c.says), "%s: %d %.200s", name, w.Code, w.Body)
	}
}

// stalled sends its text, and then nothing until it ends.
type stalled struct {
	text      io.Reader
	sent, end chan struct{}
}

func (s stalled) Read(p []byte) (int, error) {
	if n, err := s.text.Read(p); err == nil {
		return n, nil
	}
	s.sent <- struct{}{}
	<-s.end
	return 0, errors.New("i/o timeout")
}

// While bodies that never end hold what all bodies may hold, a set is admitted, and a large one is told to come again.
func TestSlowBodiesHoldNoShareOfOthers(t *testing.T) {
	server, sent, end := served(), make(chan struct{}), make(chan struct{})
	ended := make(chan int)
	const slow = mostHeld / mostBody
	for range slow {
		go func() {
			body := stalled{strings.NewReader(`{"a":"` + strings.Repeat("x", mostBody-piece)), sent, end}
			ended <- send(server, PathMutateSet, body, func(r *http.Request) { r.ContentLength = mostBody }).Code
		}()
		<-sent
	}
	set := func(size int) *httptest.ResponseRecorder {
		body := review(admissionv1.Create, setKind, setWith(t, "metadata", `"annotations":{"a":"`+strings.Repeat("x", size)+`"}`), "")
		return send(server, PathMutateSet, strings.NewReader(body), nil)
	}
	if w := set(mostBody / 2); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
		t.Errorf("a large set: %d %.200s", w.Code, w.Body)
	}
	w := set(32 << 10)
	expect.Equalf(t, http.StatusOK, w.Code, "a set: %.200s", w.Body)
	close(end)
	for range slow {
		expect.Equalf(t, http.StatusBadRequest, <-ended, "a body that does not end")
	}
	w = set(mostBody / 2)
	expect.Equalf(t, http.StatusOK, w.Code, "a large set afterwards: %.200s", w.Body)
}
