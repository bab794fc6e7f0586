package cluster

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
)

func TestErrorsSayWhatToDo(t *testing.T) {
	sets := lwsv1.GroupVersion.WithResource("leaderworkersets").GroupResource()
	forbidden := apierrors.NewForbidden(sets, "a", errors.New("no"))
	for name, tt := range map[string]struct {
		err       error
		want, not string
	}{
		"no definition": {&meta.NoKindMatchError{GroupKind: lwsv1.GroupVersion.WithKind("LeaderWorkerSet").GroupKind()}, "lockstep install", "role"},
		"not allowed":   {forbidden, `ask for a role that may list this in namespace "ns"`, "operator"},
		"logged out":    {apierrors.NewUnauthorized("no"), "log in again", "role"},
		"admission": {apierrors.NewForbidden(sets, "a", errors.New(`admission webhook "v" denied the request: spec.replicas: too many`)),
			"spec.replicas: too many", "role"},
		"no operator": {apierrors.NewInternalError(errors.New(`failed calling webhook "m": connection refused`)), "check that the operator runs", "role"},
	} {
		c := &Cluster{Config: &rest.Config{Host: "https://host"}, Namespace: "ns"}
		got := c.Explain(tt.err, "list this").Error()
		expect.That(t, strings.Contains(got, tt.want) && !strings.Contains(got, tt.not), "%s: got %q", name, got)
	}
	everywhere := &Cluster{}
	expect.Says(t, everywhere.Explain(forbidden, "list this").Error(), "with -n")
}

// The clock stands still under the context of a replay alone.
func TestTheClockOfAReplay(t *testing.T) {
	path, config := filepath.Join(t.TempDir(), "kubeconfig"), clientcmdapi.NewConfig()
	for _, name := range []string{"cluster", "replay", "broken"} {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	extend := func(name, text string) {
		config.Contexts[name].Extensions = map[string]runtime.Object{
			replayExtension: &runtime.Unknown{Raw: []byte(text), ContentType: runtime.ContentTypeJSON},
		}
	}
	extend("replay", `{"at":"2026-11-26T04:36:50.123456789Z"}`)
	extend("broken", `{"at":"yesterday"}`)
	config.CurrentContext = "cluster"
	expect.OK(t, clientcmd.WriteToFile(*config, path))
	for name, want := range map[string]time.Time{"": {}, "replay": time.Date(2026, 11, 26, 4, 36, 50, 123456789, time.UTC)} {
		o := &Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
		*o.KubeConfig, *o.Context = path, name
		err := o.readClock()
		expect.That(t, err == nil && o.At.Equal(want), "context %q: the clock stands at %s, %v", name, o.At, err)
	}
	o := &Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
	*o.KubeConfig, *o.Context = path, "broken"
	expect.That(t, o.readClock() != nil, "a broken extension is no error")
}
