package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

func TestErrorsOfRolloutArguments(t *testing.T) {
	tests := []struct{ args, want string }{
		{"rollout status", "kubectl lockstep rollout status NAME; list them with"},
		{"rollout staus a", `unknown command "staus"; did you mean status? see: kubectl lockstep rollout --help`},
		{"rollout xyzzyplugh a", `unknown command "xyzzyplugh"; see: kubectl lockstep rollout --help`},
		{"rollout status a -l x=y", "give either names or --selector"},
		{"rollout status a --timeout=-1s", "--timeout -1s: it must not be negative"},
		{"rollout status a --revision=-1", "--revision -1: it must not be negative"},
		{"rollout history a --revision=-1", "--revision -1: it must not be negative"},
		{"rollout history a -o xml", `--output:`},
		{"rollout diff a b", "give the name of one LeaderWorkerSet"},
		{"rollout diff a --to-revision=2", "--to-revision needs --revision"},
		{"rollout undo a --to-revision=-1", "--to-revision -1: it must not be negative"},
		{"rollout undo a --dry-run=maybe", `--dry-run "maybe": give one of none, client, server`},
		{"rollout pause a -o table", "--output:"},
		{"rollout pause pod/a", `"pod/a" is no LeaderWorkerSet`},
		{"rollout restart a", "no cluster is configured"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			out, err := run(t, strings.Fields(tt.args)...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || out != "" {
				t.Errorf("got %v, printed %q; want it to say %q", err, out, tt.want)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	for args, want := range map[string]int{
		"rollout diff a": 1, "rollout diff a --exit-code": 2, "version": 0,
		"rollout diff --exit-code": 2, "rollout diff a b --exit-code": 2, "rollout diff a --exit-code --to-revision=2": 2,
		"rollout diff a --exit-code --rubbish": 2, "rollout diff a --revision=x --exit-code": 2,
	} {
		if _, err := run(t, strings.Fields(args)...); ExitCode(err) != want {
			t.Errorf("%s ends with %d, want %d: %v", args, ExitCode(err), want, err)
		}
	}
	if got := ExitCode(errDiffers); got != 1 {
		t.Errorf("a difference ends with %d", got)
	}
}

func TestCompletion(t *testing.T) {
	tests := []struct{ argv, want []string }{
		{[]string{"/bin/kubectl-lockstep", "rollout", "st"}, []string{"rollout", "st"}},
		{[]string{"/bin/kubectl_complete-lockstep", "rollout", "st"}, []string{"__complete", "rollout", "st"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, Args(tt.argv)); diff != "" {
			t.Errorf("%v (-want +got)\n%s", tt.argv, diff)
		}
	}
	out, err := run(t, Args([]string{"kubectl_complete-lockstep", "rollout", "re"})...)
	if err != nil || !strings.Contains(out, "restart\t") || !strings.Contains(out, "resume\t") {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestErrorsOfWrites(t *testing.T) {
	denied := apierrors.NewForbidden(lwsv1.Resource("leaderworkersets"), "a", errors.New(`admission webhook "v" denied the request: spec.replicas: too many`))
	away := apierrors.NewInternalError(errors.New(`failed calling webhook "m": connection refused`))
	for _, tt := range []struct {
		name      string
		err       error
		want, not string
	}{
		{"not allowed", apierrors.NewForbidden(lwsv1.Resource("leaderworkersets"), "a", nil), "ask for a role that may get and patch leaderworkersets", "operator"},
		{"refused by admission", denied, "spec.replicas: too many", "ask for a role"},
		{"no operator", away, "check that the operator runs", "ask for a role"},
	} {
		got := explainWrite(tt.err, "https://host", types.NamespacedName{Namespace: "ns", Name: "a"}).Error()
		if !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
}
