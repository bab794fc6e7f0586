package operate

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// member is a pod of a group, one of whose containers restarted.
func member(name string) *corev1.Pod {
	pod := fakeapi.Pod(name, "a", 0)
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "engine", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
		{Name: "waits"},
	}
	return pod
}

// target is pods, and a kubelet that answers requests for logs.
func target(t *testing.T, kubelet http.HandlerFunc, pods ...string) (*Target, *bytes.Buffer) {
	server := httptest.NewServer(kubelet)
	t.Cleanup(server.Close)
	var out bytes.Buffer
	on := &Target{Config: &rest.Config{Host: server.URL, QPS: -1}, IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard}}
	for _, name := range pods {
		on.Pods = append(on.Pods, member(name))
	}
	return on, &out
}

// runLogs runs logs with flags.
func runLogs(t *testing.T, on *Target, flags ...string) error {
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
		flags string
		want  string // the lines, or the error
	}{
		{"", "a-2 fetch | ,a-2 engine | ,a-2-1 fetch | ,a-2-1 engine | "},
		{"-c engine", "a-2 engine | ,a-2-1 engine | "},
		{"--previous", "a-2 engine | true,a-2-1 engine | true"},
		{"-c other", "no such container was started"},
		{"-c waits", "no such container was started"},
		{"--previous -c fetch", "no such container restarted"},
		{"-f --max-log-requests 3", "--max-log-requests"},
		{"--since -1s", "must not be negative"},
	} {
		on, out := target(t, echo, "a-2", "a-2-1")
		err := runLogs(t, on, strings.Fields(tt.flags)...)
		lines := strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "\n", ",")
		if err == nil && lines != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
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
	}, "a-2", "a-2-1", "a-10", "a-10-1")
	expect.OK(t, runLogs(t, on, "-f", "-c", "engine"))
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	expect.Equal(t, pods*lines, len(got))
	next := map[string]int{}
	for _, line := range got {
		pod, _, _ := strings.Cut(line, " ")
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
	}, "a-2")
	on.HasColours = true
	err := runLogs(t, on, "-f", "--previous")
	expect.ErrorSays(t, err, "a-2/fetch: ")
	before, after, found := strings.Cut(out.String(), "before\n")
	expect.That(t, found && strings.HasPrefix(before, "\x1b[31ma-2 engine |\x1b[0m ") && strings.HasSuffix(after, "follow=true\n"), "got %q", out)
}

// What the server says of a forbidden log ends all others.
func TestAForbiddenLogEndsTheOthers(t *testing.T) {
	asked := 0
	on, _ := target(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusForbidden)
	}, "a-2", "a-2-1")
	expect.ErrorSays(t, runLogs(t, on), "a-2/fetch: ")
	expect.Equal(t, 1, asked)
}

func TestExecNeedsACommand(t *testing.T) {
	expect.ErrorSays(t, (&Exec{}).Run(t.Context(), &Target{Pods: []*corev1.Pod{member("a-1")}}), "after two dashes")
}
