// Package connect finds the API server. It refuses to know what is requested of it.
package connect

import (
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"lockstep.dev/lockstep/internal/version"
)

// patience bounds the first request.
const patience = 10 * time.Second

// Config returns the first of these clusters: that of the file at kubeconfig, of the files
// of $KUBECONFIG, of the pod that this program runs in, of ~/.kube/config.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := load(&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig})
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %q cannot be used: %w; name another with --kubeconfig", kubeconfig, err)
		}
		return config, nil
	}
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if config, err := rest.InClusterConfig(); err == nil {
			return named(config), nil
		}
	}
	config, err := load(clientcmd.NewDefaultClientConfigLoadingRules())
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured; name one with --kubeconfig or $KUBECONFIG")
	}
	return config, err
}

func load(rules *clientcmd.ClientConfigLoadingRules) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	return named(config), nil
}

func named(config *rest.Config) *rest.Config {
	config.UserAgent = version.UserAgent()
	return config
}

// Reach returns an error that says what to check if the API server does not answer.
func Reach(config *rest.Config) error {
	short := rest.CopyConfig(config)
	short.Timeout = patience
	client, err := discovery.NewDiscoveryClientForConfig(short)
	if err != nil {
		return fmt.Errorf("client for %s: %w", config.Host, err)
	}
	if _, err := client.ServerVersion(); err != nil {
		return fmt.Errorf("the API server at %s does not answer: %w; check that it runs and that --kubeconfig names it", config.Host, err)
	}
	return nil
}
