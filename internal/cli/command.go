// Package cli is kubectl lockstep: its commands, flags, connections and errors.
//
// Packages lws and pvc read and change the cluster, and package render shows what they find.
package cli

import (
	"cmp"
	"context"
	_ "embed" // the helps
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/help"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/terminal"
	"lockstep.dev/lockstep/internal/version"
)

// options are the flags and streams of all commands.
type options struct {
	flags *genericclioptions.ConfigFlags
	// at is the moment of a replayed report, or zero.
	at time.Time
	// IOStreams escape what they write. stdout does not.
	genericiooptions.IOStreams
	stdout io.Writer
	// noColor is the flag --no-color.
	noColor bool
}

// showsColours reports whether texts have colours: on a terminal, unless the flag or https://no-color.org says not.
func (o *options) showsColours() bool {
	return !o.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal.Is(o.stdout)
}

// forPrograms is where formats for programs are printed. People read a terminal.
func (o *options) forPrograms() io.Writer {
	if terminal.Is(o.stdout) {
		return o.Out
	}
	return o.stdout
}

// texts are the helps of the commands, by their names.
//
//go:embed help.txt
var texts string

// describe returns a command with its help.
func describe(name string) *cobra.Command { return help.Command(texts, name) }

// NewCommand returns kubectl lockstep.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true), IOStreams: streams, stdout: streams.Out}
	o.Out, o.ErrOut = terminal.Writer(streams.Out), terminal.Writer(streams.ErrOut)
	o.flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.UserAgent = "kubectl-" + version.UserAgent()
		config.QPS = -1 // the API server limits its clients
		config.WarningHandler = rest.NoWarnings{}
		return config
	}
	root := describe("kubectl-lockstep")
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl lockstep"}
	root.Version, root.SilenceErrors, root.SilenceUsage = version.Get().String(), true, true
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.ErrOut)
	o.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().BoolVar(&o.noColor, "no-color", false, "show no colours on a terminal; so does the variable NO_COLOR")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
			wants := map[string]string{"int64": "a whole number", "duration": "a time such as 5m", "bool": "true or false"}
			flag := invalid.GetFlag()
			err = fmt.Errorf("--%s %s: give %s", flag.Name, invalid.GetValue(), cmp.Or(wants[flag.Value.Type()], flag.Value.Type()))
		}
		return fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(o.statusCommand(), o.planCommand(), o.rolloutCommand(), o.whyCommand(), o.releaseCommand(),
		o.checkCommand(), o.reportCommand(), versionCommand())
	o.completeFlag(root, "namespace", func(ctx context.Context, _ *cluster, live client.Client, _ []string, _ string) []string {
		return namespaces.list(ctx, live, "")
	})
	return root
}

func versionCommand() *cobra.Command {
	cmd := describe("version")
	cmd.Args = cobra.NoArgs
	cmd.Run = func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), version.Get()) }
	return cmd
}

// A kind is one that arguments name objects of: KIND/NAME, or KIND NAME.
type kind struct {
	// words are kubectl's names of the kind.
	words []string
	// singular and form are for errors: the name of the kind, and the expected argument.
	singular, form string
	gvk            schema.GroupVersionKind
	// bare: a name alone is one of this kind.
	bare bool
}

var (
	claims = kind{
		words:    []string{"pvc", "persistentvolumeclaim", "persistentvolumeclaims"},
		singular: "PersistentVolumeClaim", form: "pvc/NAME",
		gvk: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"),
	}
	namespaces = kind{
		words: []string{"namespace", "ns", "namespaces"}, singular: "namespace", form: "namespace/NAME",
		gvk: corev1.SchemeGroupVersion.WithKind("NamespaceList"),
	}
	sets = kind{
		words: []string{
			"lws", "leaderworkerset", "leaderworkersets",
			"leaderworkerset." + lwsv1.GroupVersion.Group, "leaderworkersets." + lwsv1.GroupVersion.Group,
		},
		singular: "LeaderWorkerSet", form: "NAME, lws/NAME or leaderworkerset/NAME", bare: true,
		gvk: lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"),
	}
)

func (k kind) known(word string) bool { return slices.Contains(k.words, strings.ToLower(word)) }

// names reads KIND NAME…, KIND/NAME… and, for a bare kind, NAME….
func (k kind) names(args []string) ([]string, error) {
	said := len(args) > 0 && k.known(args[0]) && (len(args) > 1 || !k.bare) // a single argument may be a name
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

// completer is the program that kubectl runs for completions.
const completer = "kubectl_complete-lockstep"

// Args returns the arguments of the command. kubectl asks for completions under another program name.
func Args(argv []string) []string {
	if filepath.Base(argv[0]) == completer {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

// completeWithin bounds how long a request of a completion keeps a shell.
const completeWithin = time.Second

// suggest returns what may stand after the arguments of a command line. An error suggests nothing.
type suggest func(ctx context.Context, c *cluster, live client.Client, args []string, typed string) []string

// completion returns a completion of the shell from the cluster.
func (o *options) completion(find suggest) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		*o.flags.Timeout = completeWithin.String() // discovery knows no context
		ctx, done := context.WithTimeout(cmd.Context(), completeWithin)
		defer done()
		if c, live, err := o.client(ctx); err == nil {
			found = find(ctx, c, live, args, typed)
		}
		isOther := func(one string) bool { return !strings.HasPrefix(one, typed) }
		return slices.DeleteFunc(found, isOther), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames completes the arguments of a command: names of kinds, no more than most.
func (o *options) completeNames(cmd *cobra.Command, most int, kinds ...kind) {
	cmd.ValidArgsFunction = o.completion(func(ctx context.Context, c *cluster, live client.Client, args []string, typed string) (all []string) {
		for _, k := range kinds {
			all = append(all, k.fit(args, typed, k.list(ctx, live, c.namespace), most)...)
		}
		return all
	})
}

// completeFlag completes the values of a flag.
func (o *options) completeFlag(cmd *cobra.Command, flag string, find suggest) {
	if err := cmd.RegisterFlagCompletionFunc(flag, o.completion(find)); err != nil {
		panic(err) // the flag does not exist
	}
}

// fit returns names as arguments, in the form that is typed.
func (k kind) fit(args []string, typed string, names []string, most int) (all []string) {
	said := len(args) > 0 && k.known(args[0])
	given, err := k.names(args)
	if err != nil || len(given) >= most && (!said || len(args) != 1) {
		return nil
	}
	prefix := ""
	if word, _, slashed := strings.Cut(typed, "/"); slashed && k.known(word) {
		prefix = word + "/"
	} else if !k.bare && !said {
		prefix = k.words[0] + "/"
	}
	for _, name := range names {
		if !slices.Contains(given, name) {
			all = append(all, prefix+name)
		}
	}
	return all
}

// list reads the names of objects; those of namespaces everywhere.
func (k kind) list(ctx context.Context, live client.Client, namespace string) (names []string) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(k.gvk)
	_ = live.List(ctx, list, client.InNamespace(namespace))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// revisionNumbers suggests the revisions of the set that is named, with their keys.
func revisionNumbers(ctx context.Context, c *cluster, live client.Client, args []string, _ string) (numbers []string) {
	set := &lwsv1.LeaderWorkerSet{}
	names, _ := sets.names(args)
	if len(names) == 0 || live.Get(ctx, c.key(names[0]), set) != nil {
		return nil
	}
	revisions, _ := lwscache.Revisions(ctx, live, set)
	for _, r := range revisions {
		numbers = append(numbers, fmt.Sprintf("%d\t%s", r.Revision, r.Labels[lwsv1.RevisionKey]))
	}
	return numbers
}
