package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"lockstep.dev/lockstep/internal/cli/lws"
)

// patience bounds the first answer of an API server without --request-timeout.
const patience = 10 * time.Second

// defaultHost is what client-go returns when no cluster is configured.
const defaultHost = "http://localhost:8080"

// config returns the configuration of the cluster that the flags name.
func (o *options) config() (*rest.Config, error) {
	config, err := o.flags.ToRESTConfig()
	if clientcmd.IsEmptyConfig(err) || err == nil && config.Host == defaultHost && *o.flags.APIServer == "" {
		return nil, noConfig(errors.New("no configuration names one"))
	}
	return config, noConfig(err)
}

func noConfig(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("no cluster is configured: %w; check --kubeconfig, --context and $KUBECONFIG", err)
}

// namespace returns the namespace of the flags, or else of the kubeconfig.
func (o *options) namespace() (string, error) {
	namespace, _, err := o.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, noConfig(err)
}

// open starts to read a namespace.
func (o *options) open(ctx context.Context, namespace string) (*lws.Session, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	if err := reach(ctx, config); err != nil {
		return nil, err
	}
	session, err := lws.Open(ctx, config, namespace, o.ErrOut)
	if err != nil {
		return nil, explain(err, config.Host, namespace)
	}
	return session, nil
}

// reach asks the API server for its version; the error says what to check if there is no answer.
func reach(ctx context.Context, config *rest.Config) error {
	short := rest.CopyConfig(config)
	if short.Timeout <= 0 {
		short.Timeout = patience
	}
	client, err := discovery.NewDiscoveryClientForConfig(short)
	if err != nil {
		return fmt.Errorf("client for %s: %w", config.Host, err)
	}
	_, err = client.ServerVersionWithContext(ctx)
	switch {
	case err == nil, apierrors.IsForbidden(err): // it answers
		return nil
	case apierrors.IsUnauthorized(err):
		return explain(err, config.Host, "")
	}
	return fmt.Errorf("the API server at %s does not answer: %w; check that it runs and that --kubeconfig or --context names the right one", config.Host, err)
}

// noSuch returns the error that an object does not exist.
func noSuch(resource string, key types.NamespacedName) error {
	return fmt.Errorf("no %s %q in namespace %q; list them with: kubectl get %ss -A", resource, key.Name, key.Namespace, resource)
}

// explain adds what to do about an error of the API server.
func explain(err error, host, namespace string) error {
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster at %s does not know leaderworkersets; run: lockstep install", host)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s does not accept these credentials; log in again, or choose others with --context or --user", host)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not allowed: %w; ask for a role that may get, list and watch leaderworkersets, statefulsets, controllerrevisions, pods and services in namespace %q", err, namespace)
	}
	return err
}
