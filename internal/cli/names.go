package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A kind is one that arguments name objects of: KIND/NAME, or KIND NAME.
type kind struct {
	resource schema.GroupVersionResource
	// words are kubectl's names of the kind; completion offers the first.
	words []string
	// singular and form are for errors: the name of the kind, and the expected argument.
	singular, form string
	// bare: a name alone is one of this kind.
	bare bool
}

var (
	claims = kind{
		resource: corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
		words:    []string{"pvc", "persistentvolumeclaim", "persistentvolumeclaims"},
		singular: "PersistentVolumeClaim", form: "pvc/NAME",
	}
	namespaces = kind{
		resource: corev1.SchemeGroupVersion.WithResource("namespaces"),
		words:    []string{"namespace", "ns", "namespaces"}, singular: "namespace", form: "namespace/NAME",
	}
	sets = kind{
		resource: lwsv1.GroupVersion.WithResource("leaderworkersets"),
		words: []string{
			"lws", "leaderworkerset", "leaderworkersets",
			"leaderworkerset." + lwsv1.GroupVersion.Group, "leaderworkersets." + lwsv1.GroupVersion.Group,
		},
		singular: "LeaderWorkerSet", form: "NAME, lws/NAME or leaderworkerset/NAME", bare: true,
	}
)

func (k kind) known(word string) bool { return slices.Contains(k.words, strings.ToLower(word)) }

// said reports whether the first argument is the kind of all others. A single argument may be a name.
func (k kind) said(args []string) bool {
	return len(args) > 0 && k.known(args[0]) && (len(args) > 1 || !k.bare)
}

// names reads KIND NAME…, KIND/NAME… and, for a bare kind, NAME….
func (k kind) names(args []string) ([]string, error) {
	said := k.said(args)
	if said {
		args = args[1:]
	}
	var names []string
	for _, arg := range args {
		word, name, slashed := strings.Cut(arg, "/")
		switch {
		case !slashed && (said || k.bare):
			name = arg
		case !slashed || !k.known(word) || name == "" || strings.Contains(name, "/"):
			return nil, fmt.Errorf("%q is no %s: give %s", arg, k.singular, k.form)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// offers returns the names that complete what was typed, in its form.
func (k kind) offers(names, args []string, typed string) []string {
	word, _, slashed := strings.Cut(typed, "/")
	prefix := ""
	switch {
	case slashed && !k.known(word):
		return nil
	case slashed:
		prefix = word + "/"
	case !k.bare && !k.said(args):
		prefix = k.words[0] + "/"
	}
	var offered []string
	for _, name := range names {
		if !slices.Contains(args, prefix+name) {
			offered = append(offered, prefix+name)
		}
	}
	return offered
}

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

// complete offers the objects of a kind.
func (o *options) complete(k kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		names, err := o.list(cmd.Context(), k)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return k.offers(names, args, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

func (o *options) list(ctx context.Context, k kind) (names []string, err error) {
	c, err := o.cluster()
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	if k.resource == namespaces.resource {
		c.namespace = ""
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	list, err := client.Resource(k.resource).Namespace(c.namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
