package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A kind is one that arguments name objects of: KIND/NAME, or KIND NAME.
type kind struct {
	// words are kubectl's names of the kind.
	words []string
	// singular and form are for errors: the name of the kind, and the expected argument.
	singular, form string
	// bare: a name alone is one of this kind.
	bare bool
}

var (
	claims = kind{
		words:    []string{"pvc", "persistentvolumeclaim", "persistentvolumeclaims"},
		singular: "PersistentVolumeClaim", form: "pvc/NAME",
	}
	namespaces = kind{
		words: []string{"namespace", "ns", "namespaces"}, singular: "namespace", form: "namespace/NAME",
	}
	sets = kind{
		words: []string{
			"lws", "leaderworkerset", "leaderworkersets",
			"leaderworkerset." + lwsv1.GroupVersion.Group, "leaderworkersets." + lwsv1.GroupVersion.Group,
		},
		singular: "LeaderWorkerSet", form: "NAME, lws/NAME or leaderworkerset/NAME", bare: true,
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
