package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
	readSets   = "get, list and watch leaderworkersets, statefulsets, deployments, replicasets, controllerrevisions, pods, services and persistentvolumeclaims"
	writeSets  = "get, create and patch leaderworkersets, and for undo list controllerrevisions"
	readPVCs   = "get and list persistentvolumeclaims, pods and workloads"
	releasePVC = "get and patch it, release claims.protection.lockstep.dev, and " + readPVCs
)

// cluster is the API server and the namespace that the flags name.
type cluster struct {
	*options
	config    *rest.Config
	namespace string
}

// reach reads the flags and the kubeconfig. It returns the cluster if its API server answers.
func (o *options) reach(ctx context.Context) (*cluster, error) {
	namespace, _, err := o.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, noConfig(err)
	}
	if err := o.readClock(); err != nil {
		return nil, err
	}
	config, err := o.flags.ToRESTConfig()
	if clientcmd.IsEmptyConfig(err) || err == nil && config.Host == defaultHost && *o.flags.APIServer == "" {
		err = errors.New("no configuration names one")
	}
	if err != nil {
		return nil, noConfig(err)
	}
	return &cluster{o, config, namespace}, connect.Reach(ctx, config)
}

func noConfig(err error) error {
	return fmt.Errorf("no cluster is configured: %w; check --kubeconfig, --context and $KUBECONFIG", err)
}

// client returns the cluster, and a client that reads live and writes what a command asks for.
func (o *options) client(ctx context.Context) (*cluster, client.Client, error) {
	c, err := o.reach(ctx)
	if err != nil {
		return nil, nil, err
	}
	live, err := client.New(c.config, client.Options{Scheme: lws.Scheme()})
	return c, live, err
}

// session reads the sets of one namespace.
type session struct {
	*cluster
	*lws.Session
}

// open starts to read a namespace.
func (c *cluster) open(ctx context.Context, namespace string) (*session, error) {
	opened, err := lws.Open(ctx, c.config, namespace, c.ErrOut)
	if err == nil && c.at.IsZero() { // a replay has no operator
		opened.Lease = place.Lease(ctx, opened.Live)
	}
	return &session{c, opened}, c.explain(err, readSets)
}

// session starts to read the namespace of the flags.
func (o *options) session(ctx context.Context) (*session, error) {
	c, err := o.reach(ctx)
	if err != nil {
		return nil, err
	}
	return c.open(ctx, c.namespace)
}

// survey reads a set that must exist.
func (s *session) survey(ctx context.Context, key types.NamespacedName) (lws.Survey, error) {
	found, err := s.Set(ctx, key, s.now())
	if apierrors.IsNotFound(err) {
		return found, noSuch("leaderworkerset", key)
	}
	return found, s.explain(err, readSets)
}

// key names an object of the namespace.
func (c *cluster) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.namespace, Name: name}
}

// noSuch returns the error that an object does not exist.
func noSuch(resource string, key types.NamespacedName) error {
	return fmt.Errorf("no %s %q in namespace %q; list them with: kubectl get %ss -A", resource, key.Name, key.Namespace, resource)
}

// explain adds what to do about an error of the API server. needs is what the command must be allowed to do.
func (c *cluster) explain(err error, needs string) error {
	switch {
	case err == nil, strings.Contains(err.Error(), "denied the request"): // the message of admission is enough
		return err
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster at %s does not know leaderworkersets; run: lockstep install", c.config.Host)
	case apierrors.IsUnauthorized(err):
		return connect.Unauthorized(c.config)
	case apierrors.IsForbidden(err) && c.namespace == "":
		return fmt.Errorf("not allowed: %w; ask about one namespace with -n, or for a role that may %s everywhere", err, needs)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not allowed: %w; ask for a role that may %s in namespace %q", err, needs, c.namespace)
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		return fmt.Errorf("the webhook does not answer, so nothing was changed: %w; check that the operator runs: kubectl -n lws-system get pods", err)
	}
	return err
}

// replayExtension is an extension of the kubeconfig's context of a replayed report: the time at which its clock
// stands still. The clock belongs to the connection, so no object of a cluster can stop it.
const replayExtension = "lockstep.dev/replay"

// now is the time, or the moment of the report that is replayed.
func (o *options) now() time.Time {
	if o.at.IsZero() {
		return time.Now()
	}
	return o.at
}

// readClock reads whether the context of the kubeconfig is that of a replayed report.
func (o *options) readClock() error {
	config, err := o.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return noConfig(err)
	}
	name := config.CurrentContext
	if *o.flags.Context != "" {
		name = *o.flags.Context
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
	o.at = moment.At
	return nil
}
