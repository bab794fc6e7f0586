package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// run runs the plugin without any cluster configured.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	streams, in, stdout, _ := genericiooptions.NewTestIOStreams()
	in.WriteString("hello")
	cmd := NewCommand(streams)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), err
}

func TestErrorsOfArguments(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no name", []string{"status"}, "give the name of one LeaderWorkerSet"},
		{"two names", []string{"status", "a", "b"}, "give the name of one LeaderWorkerSet"},
		{"neither name nor file", []string{"plan"}, "plan NAME, or plan -f FILE"},
		{"both", []string{"plan", "a", "-f", "b"}, "plan NAME, or plan -f FILE"},
		{"another kind", []string{"status", "deployment/a"}, `"deployment/a" is no LeaderWorkerSet: give NAME, lws/NAME or leaderworkerset/NAME`},
		{"the plan of another kind", []string{"plan", "deployment/a"}, `"deployment/a" is no LeaderWorkerSet`},
		{"the kind before the name", []string{"status", "lws", "a"}, "no cluster is configured"},
		{"the kind before the name of a plan", []string{"plan", "lws", "a"}, "no cluster is configured"},
		{"an unknown flag", []string{"status", "a", "--wach"}, "kubectl lockstep status --help"},
		{"an unknown output", []string{"status", "a", "-o", "xml"}, `--output:`},
		{"why of nothing", []string{"why"}, "name a PVC: pvc/NAME, or pvc for all of the namespace"},
		{"why of another kind", []string{"why", "pod/a"}, `"pod/a" is no PersistentVolumeClaim: give pvc/NAME`},
		{"why of all and of one", []string{"why", "pvc/a", "-A"}, "give either names or --all-namespaces"},
		{"if nothing is deleted", []string{"why", "pvc", "--if-deleted"}, "--if-deleted needs the name of a PVC"},
		{"an unknown command", []string{"state", "a"}, "status"},
		{"no cluster", []string{"status", "a"}, "no cluster is configured"},
		{"rubbish", []string{"plan", "-f", "-"}, `unable to decode "standard input"`},
		{"a missing file", []string{"plan", "-f", "/nonexistent.yaml"}, "/nonexistent.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := run(t, tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
			if out != "" {
				t.Errorf("printed %q", out)
			}
		})
	}
}

func TestVersionNeedsNoCluster(t *testing.T) {
	out, err := run(t, "version")
	if err != nil || !strings.HasPrefix(out, "Version: ") {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestErrorsOfReads(t *testing.T) {
	forbidden := apierrors.NewForbidden(lwsv1.Resource("leaderworkersets"), "", nil)
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"no CRD", &meta.NoKindMatchError{GroupKind: lwsv1.Kind("LeaderWorkerSet")}, "does not know leaderworkersets; run: lockstep install"},
		{"not allowed", forbidden, `leaderworkersets.leaderworkerset.x-k8s.io is forbidden`},
		{"what to ask for", forbidden, `get, list and watch leaderworkersets, statefulsets, controllerrevisions, pods and services in namespace "ns"`},
		{"logged out", apierrors.NewUnauthorized("no"), "log in again"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := explain(tt.err, "https://host", "ns").Error(); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want it to say %q", got, tt.want)
			}
		})
	}
}

func TestUnreachableServer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	err := reach(t.Context(), &rest.Config{Host: server.URL})
	if err == nil || !strings.Contains(err.Error(), "the API server at "+server.URL+" does not answer") {
		t.Errorf("got %v", err)
	}
}
