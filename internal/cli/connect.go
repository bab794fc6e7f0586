package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"lockstep.dev/lockstep/internal/cli/lws"
)

// patience is how long an API server may take for its first answer, unless
// --request-timeout says otherwise.
const patience = 10 * time.Second

// defaultHost is where kubectl looks for a cluster when none is configured.
const defaultHost = "http://localhost:8080"

// config finds the cluster the user means.
func (o *options) config() (*rest.Config, error) {
	config, err := o.flags.ToRESTConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, noCluster()
	case err != nil:
		return nil, noConfig(err)
	case config.Host == defaultHost && *o.flags.APIServer == "":
		return nil, noCluster()
	}
	return config, nil
}

// noCluster says that nothing names a cluster, and which files should have.
func noCluster() error {
	var absent []string
	for _, file := range filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)) {
		if _, err := os.Stat(file); os.IsNotExist(err) {
			absent = append(absent, file)
		}
	}
	if len(absent) == 0 {
		return errors.New("no cluster is configured; name one with --kubeconfig, --context or $KUBECONFIG")
	}
	return fmt.Errorf("no cluster is configured: $KUBECONFIG names %s, which is not there; correct it, or name a cluster with --kubeconfig or --context", strings.Join(absent, ", "))
}

func noConfig(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("no cluster to talk to: %w; check --kubeconfig, --context and $KUBECONFIG", err)
}

// namespace is the one the user means when he names none in a file.
func (o *options) namespace() (string, error) {
	namespace, _, err := o.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, noConfig(err)
}

// open begins to read a namespace.
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

// explain says what to do about what an API server answered.
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
