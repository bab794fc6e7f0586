// Package connect finds the API server. It does not know the requests.
package connect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"lockstep.dev/lockstep/internal/version"
)

// patience bounds the first request if no timeout is configured.
const patience = 10 * time.Second

// Config returns the first of these clusters: that of the file at kubeconfig, of the files
// of $KUBECONFIG, of the pod that this program runs in, of ~/.kube/config.
func Config(kubeconfig string) (config *rest.Config, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	if kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		config, _ = rest.InClusterConfig() // it is nil outside of a pod
	}
	if config == nil {
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	}
	switch {
	case err != nil && kubeconfig != "":
		return nil, fmt.Errorf("kubeconfig %q cannot be used: %w; name another with --kubeconfig", kubeconfig, err)
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no cluster is configured; name one with --kubeconfig or $KUBECONFIG")
	case err != nil:
		return nil, err
	}
	config.UserAgent = version.UserAgent()
	return config, nil
}

// Reach returns an error that says what to check if the API server does not answer. An answer that refuses
// the version is an answer.
func Reach(ctx context.Context, config *rest.Config) error {
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
	case err == nil, apierrors.IsForbidden(err):
		return nil
	case apierrors.IsUnauthorized(err):
		return Unauthorized(config)
	}
	return fmt.Errorf("the API server at %s does not answer: %w; check that it runs and that the kubeconfig names the right one", config.Host, err)
}

// Unauthorized returns the error that the API server does not know the user.
func Unauthorized(config *rest.Config) error {
	return fmt.Errorf("the API server at %s does not accept these credentials; log in again, or choose others", config.Host)
}
