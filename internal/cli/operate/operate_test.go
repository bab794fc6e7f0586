package operate

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// member adds a pod of a group, one of whose containers restarted.
func member(s *fakeapi.Server, group, worker string) {
	name := "a-" + group
	if worker != "0" {
		name += "-" + worker
	}
	pod := fakeapi.Pod(name, "a", 0)
	pod.Labels = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.GroupIndexLabelKey: group, lwsv1.WorkerIndexLabelKey: worker}
	pod.Spec.InitContainers, pod.Spec.Containers = []corev1.Container{{Name: "fetch"}}, []corev1.Container{{Name: "engine"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "engine", LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
	}}
	fakeapi.Add(s, pod)
}

// target is a set with two groups of two pods, and a kubelet that answers requests for logs.
func target(t *testing.T, kubelet http.HandlerFunc) (*Target, *bytes.Buffer) {
	s := fakeapi.New()
	fakeapi.Add(s, fakeapi.Set("a", 2, 2))
	for _, index := range []string{"10", "2"} {
		member(s, index, "0")
		member(s, index, "1")
	}
	server := httptest.NewServer(kubelet)
	t.Cleanup(server.Close)
	var out bytes.Buffer
	return &Target{
		Set:    types.NamespacedName{Namespace: fakeapi.Namespace, Name: "a"},
		Config: &rest.Config{Host: server.URL, QPS: -1}, Live: s.Live(), Raw: &out, Out: &out, ErrOut: &out,
	}, &out
}

// run runs logs with flags.
func run(t *testing.T, on *Target, flags ...string) error {
	l, set := &Logs{}, pflag.NewFlagSet("logs", pflag.ContinueOnError)
	l.Flags(set)
	expect.OK(t, set.Parse(flags))
	return l.Run(t.Context(), on)
}

// podOf is the pod of a request for a log, and its container.
func podOf(r *http.Request) string {
	return strings.Split(r.URL.Path, "/")[6] + " " + r.URL.Query().Get("container")
}

func TestLogs(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("container") == "fetch" && r.URL.Query().Get("previous") == "true" {
			t.Error("a run was asked for that never was")
		}
		fmt.Fprintf(w, "%s\n", r.URL.Query().Get("previous"))
	}
	for _, tt := range []struct {
		flags, group string
		want         string // the lines, or the error
	}{
		{"", "2", "2/a-2 fetch | ,2/a-2 engine | ,2/a-2-1 fetch | ,2/a-2-1 engine | "},
		{"-c engine", "", "2/a-2 engine | ,2/a-2-1 engine | ,10/a-10 engine | ,10/a-10-1 engine | "},
		{"--previous", "10", "10/a-10 engine | true,10/a-10-1 engine | true"},
		{"-c other", "2", `no pod has a container "other"; pod a-2 has: fetch, engine`},
		{"--previous -c fetch", "2", "no container restarted"},
		{"-f --max-log-requests 3", "2", "--max-log-requests"},
		{"", "7", "kubectl lockstep status a -n"},
	} {
		on, out := target(t, echo)
		on.Name = tt.group
		err := run(t, on, strings.Fields(tt.flags)...)
		lines := strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "\n", ",")
		if lines != tt.want && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: got %q, %v; want %q", tt.flags, lines, err, tt.want)
		}
	}
}

// All containers are followed at once, each line is whole, and no text of theirs steers the terminal.
func TestLinesOfLogsAreNeverMixed(t *testing.T) {
	const pods, lines = 4, 200
	all := make(chan struct{}, pods)
	on, out := target(t, func(w http.ResponseWriter, r *http.Request) {
		all <- struct{}{}
		for len(all) < pods { // each waits until all are open
			time.Sleep(time.Millisecond)
		}
		for i := range lines {
			fmt.Fprintf(w, "%d of %s", i, podOf(r))
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "\x1b[2J\r\n")
		}
	})
	expect.OK(t, run(t, on, "-f", "-c", "engine"))
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	expect.Equal(t, pods*lines, len(got))
	next := map[string]int{}
	for _, line := range got {
		pod, _, _ := strings.Cut(strings.SplitN(line, "/", 2)[1], " ")
		want := fmt.Sprintf("%s engine | %d of %[1]s engine", pod, next[pod])
		expect.Must(t, strings.HasSuffix(line, want+`\u001b[2J`), "got %q, want %q", line, want)
		next[pod]++
	}
}

// With -f the run before the last restart comes in front of the present one. What cannot be read hides no other log.
func TestFollowedLogsBeginWithTheRunBefore(t *testing.T) {
	on, out := target(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case podOf(r) == "a-2 fetch":
			http.Error(w, "waiting to start", http.StatusBadRequest)
		case r.URL.Query().Get("previous") == "true":
			fmt.Fprintln(w, "before")
		default:
			fmt.Fprintln(w, "follow="+r.URL.Query().Get("follow"))
		}
	})
	on.Name, on.Worker, on.HasColours = "2", "0", true
	err := run(t, on, "-f", "--previous")
	expect.ErrorSays(t, err, "a-2/fetch: ")
	before, after, found := strings.Cut(out.String(), "before\n")
	expect.That(t, found && strings.HasPrefix(before, "\x1b[31m2/a-2 engine |\x1b[0m ") && strings.HasSuffix(after, "follow=true\n"), "got %q", out)
}

// Events are those of the set and of its objects, of any incarnation, by the time of the last one.
func TestEvents(t *testing.T) {
	s := fakeapi.New()
	set := fakeapi.Add(s, fakeapi.Set("a", 2, 2))
	member(s, "0", "0")
	member(s, "0", "1")
	member(s, "1", "0")
	fakeapi.Add(s, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "a", Labels: map[string]string{lwsv1.SetNameLabelKey: "a"}}})
	for i, e := range []struct {
		kind, name string
		uid        types.UID
		related    string
	}{
		{"Pod", "a-0-1", "former", ""}, {"LeaderWorkerSet", "a", set.UID, "a-1"}, {"LeaderWorkerSet", "a", "former", "a-1"},
		{"StatefulSet", "a", "", ""}, {"Pod", "b-0", "", ""}, {"LeaderWorkerSet", "a", set.UID, "a-0"},
	} {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: fmt.Sprint(i)}, Message: fmt.Sprint(i)}
		event.InvolvedObject = corev1.ObjectReference{Kind: e.kind, Name: e.name, UID: e.uid}
		event.LastTimestamp = metav1.NewTime(fakeapi.Epoch.Add(time.Duration(-i) * time.Minute))
		if e.related != "" {
			event.Related = &corev1.ObjectReference{Kind: "Pod", Name: e.related}
		}
		fakeapi.Add(s, event)
	}
	for group, want := range map[string]string{"": "5 3 1 0", "0": "5 0", "1": "1"} {
		on := &Target{Set: types.NamespacedName{Namespace: fakeapi.Namespace, Name: "a"}, Name: group, Live: s.Live()}
		found := expect.Value(on.events(t.Context()))(t)
		messages := fakeapi.Each(found.Items, func(e corev1.Event) string { return e.Message })
		expect.Equalf(t, want, strings.Join(messages, " "), "events of group %q", group)
	}
}
