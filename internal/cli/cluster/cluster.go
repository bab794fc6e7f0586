// Package cluster connects commands with the API server that their flags name, and explains its errors.
//
// It knows the kubeconfig, and the clock of a replayed report. It refuses to know commands and what they print.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/connect"
	"lockstep.dev/lockstep/internal/install/place"
)

// defaultHost is what client-go returns when no cluster is configured.
const defaultHost = "http://localhost:8080"

// What commands must be allowed to do.
const (
	ReadSets   = "get, list and watch disaggregatedsets, disaggregatedsetrolescalers, leaderworkersets, statefulsets, deployments, replicasets, controllerrevisions, pods, services and persistentvolumeclaims"
	WriteSets  = "get, create and patch leaderworkersets, and for undo list controllerrevisions"
	WriteRoles = "get, create and patch disaggregatedsets, and for undo list controllerrevisions"
	ReadPVCs   = "get and list persistentvolumeclaims, pods and workloads"
	ReleasePVC = "get and patch it, release claims.protection.lockstep.dev, and " + ReadPVCs
)

// Flags name the cluster and the namespace.
type Flags struct {
	*genericclioptions.ConfigFlags
	// Warn receives what watches complain about.
	Warn io.Writer
	// At is the moment of a replayed report, or zero.
	At time.Time
}

// Cluster is the API server and the namespace that the flags name.
type Cluster struct {
	*Flags
	Config    *rest.Config
	Namespace string
}

// Reach reads the flags and the kubeconfig. It returns the cluster if its API server answers.
func (f *Flags) Reach(ctx context.Context) (*Cluster, error) {
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, noConfig(err)
	}
	if err := f.readClock(); err != nil {
		return nil, err
	}
	config, err := f.ToRESTConfig()
	if clientcmd.IsEmptyConfig(err) || err == nil && config.Host == defaultHost && *f.APIServer == "" {
		err = errors.New("no configuration names one")
	}
	if err != nil {
		return nil, noConfig(err)
	}
	return &Cluster{f, config, namespace}, connect.Reach(ctx, config)
}

func noConfig(err error) error {
	return fmt.Errorf("no cluster is configured: %w; check --kubeconfig, --context and $KUBECONFIG", err)
}

// Client returns the cluster, and a client that reads live and writes what a command asks for.
func (f *Flags) Client(ctx context.Context) (*Cluster, client.Client, error) {
	c, err := f.Reach(ctx)
	if err != nil {
		return nil, nil, err
	}
	live, err := client.New(c.Config, client.Options{Scheme: lws.Scheme()})
	return c, live, err
}

// Session reads the sets of one namespace.
type Session struct {
	*Cluster
	*lws.Session
}

// Open starts to read a namespace.
func (c *Cluster) Open(ctx context.Context, namespace string) (*Session, error) {
	opened, err := lws.Open(ctx, c.Config, namespace, c.Warn)
	if err == nil && c.At.IsZero() { // a replay has no operator
		opened.Lease = place.Lease(ctx, opened.Live)
	}
	return &Session{c, opened}, c.Explain(err, ReadSets)
}

// Session starts to read the namespace of the flags.
func (f *Flags) Session(ctx context.Context) (*Session, error) {
	c, err := f.Reach(ctx)
	if err != nil {
		return nil, err
	}
	return c.Open(ctx, c.Namespace)
}

// Survey reads a set that must exist.
func (s *Session) Survey(ctx context.Context, key types.NamespacedName) (lws.Survey, error) {
	found, err := s.Set(ctx, key, s.Now())
	if apierrors.IsNotFound(err) {
		return found, NoSuch("leaderworkerset", key)
	}
	return found, s.Explain(err, ReadSets)
}

// Key names an object of the namespace.
func (c *Cluster) Key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: name}
}

// Each runs do for each named object, and continues with the others when one fails.
func (c *Cluster) Each(names []string, do func(types.NamespacedName) error) error {
	var all []error
	for _, name := range names {
		all = append(all, do(c.Key(name)))
	}
	return errors.Join(all...)
}

// NoSuch returns the error that an object does not exist.
func NoSuch(resource string, key types.NamespacedName) error {
	return fmt.Errorf("no %s %q in namespace %q; list them with: kubectl get %ss -A", resource, key.Name, key.Namespace, resource)
}

// Explain adds what to do about an error of the API server. needs is what the command must be allowed to do.
func (c *Cluster) Explain(err error, needs string) error {
	switch {
	case err == nil, strings.Contains(err.Error(), "denied the request"): // the message of admission is enough
		return err
	case meta.IsNoMatchError(err):
		kind := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "LeaderWorkerSet"}}
		errors.As(err, &kind)
		return fmt.Errorf("the cluster at %s does not know %ss; run: lockstep install", c.Config.Host, strings.ToLower(kind.GroupKind.Kind))
	case apierrors.IsUnauthorized(err):
		return connect.Unauthorized(c.Config)
	case apierrors.IsForbidden(err) && c.Namespace == "":
		return fmt.Errorf("not allowed: %w; ask about one namespace with -n, or for a role that may %s everywhere", err, needs)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not allowed: %w; ask for a role that may %s in namespace %q", err, needs, c.Namespace)
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		return fmt.Errorf("the webhook does not answer, so nothing was changed: %w; check that the operator runs: kubectl -n lws-system get pods", err)
	}
	return err
}

// replayExtension is an extension of the kubeconfig's context of a replayed report: the time at which its clock
// stands still. The clock belongs to the connection, so no object of a cluster can stop it.
const replayExtension = "lockstep.dev/replay"

// Now is the time, or the moment of the report that is replayed.
func (f *Flags) Now() time.Time {
	if f.At.IsZero() {
		return time.Now()
	}
	return f.At
}

// readClock reads whether the context of the kubeconfig is that of a replayed report.
func (f *Flags) readClock() error {
	config, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return noConfig(err)
	}
	name := config.CurrentContext
	if *f.Context != "" {
		name = *f.Context
	}
	context := config.Contexts[name]
	if context == nil {
		return nil
	}
	replay, ok := context.Extensions[replayExtension].(*runtime.Unknown)
	if !ok {
		return nil
	}
	var moment struct {
		At time.Time `json:"at"`
	}
	if err := json.Unmarshal(replay.Raw, &moment); err != nil {
		return fmt.Errorf("extension %s of context %q in the kubeconfig: %w", replayExtension, name, err)
	}
	f.At = moment.At
	return nil
}
