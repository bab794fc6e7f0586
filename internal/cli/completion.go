package cli

import (
	"context"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// completionTimeout bounds the requests of a completion.
const completionTimeout = 2 * time.Second

// completer is the program that kubectl runs for completions.
const completer = "kubectl_complete-lockstep"

// Args returns the arguments of the command. kubectl asks for completions under another program name.
func Args(argv []string) []string {
	if filepath.Base(argv[0]) == completer {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

func (o *options) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.names(cmd.Context(), schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "")
}

func (o *options) names(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]string, cobra.ShellCompDirective) {
	config, err := o.config()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	list, err := client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
